"""Optimus (EuroSys 2018): jobs with parameter servers, and how their blocks are spread."""
