"""The job file that people write, other formats converted into it, and the program to run."""

from roost.jobfile.errors import FieldError, JobFileErrors
from roost.jobfile.model import JobFile, to_yaml
from roost.jobfile.parse import ParsedJob, parse
from roost.jobfile.program import Program, RetryRule, Suspend, Task

__all__ = [
    "FieldError",
    "JobFile",
    "JobFileErrors",
    "ParsedJob",
    "Program",
    "RetryRule",
    "Suspend",
    "Task",
    "parse",
    "to_yaml",
]
