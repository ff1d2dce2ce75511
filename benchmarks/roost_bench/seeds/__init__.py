"""The evaluation that seed papers of Roost ask for, by one command."""
