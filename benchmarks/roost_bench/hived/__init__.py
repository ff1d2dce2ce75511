"""HiveD's conformance cases, and long random histories in which no promise of cells may break."""
