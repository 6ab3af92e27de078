"""The image of Bindery's components, made without a container engine.

`build` makes its layers from Debian's packages (`packages`), from the locked dependencies and from
this checkout; `oci` writes the archive that engines load, and `sbom` its bill of materials.
"""
