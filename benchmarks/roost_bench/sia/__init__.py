"""Sia (SOSP 2023): adaptive jobs on GPUs of several kinds, and the conditions that vary it."""
