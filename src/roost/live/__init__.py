"""The live driver: journal, core and engine in one loop; recovery; understanding failures."""
