"""The pages: each a pure function from what a person may see to a frozen structure.

HTML, JSON and CSV are three renderings of that structure (`bindery.dashboard.rendering`).
"""
