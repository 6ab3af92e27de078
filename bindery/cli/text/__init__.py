"""Answers in lines for people. Pure: no terminal, no options, no files."""
