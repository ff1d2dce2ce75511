"""What Philly's jobs look like, in numbers: the shape that ``generate`` draws from.

Fitted to the 82 247 jobs of the flat Philly trace (Microsoft, ATC'19, as flattened by the Sia
artifact; 2017-09-04 to 2017-12-22):

- ``GPUS``: how many jobs asked for each number of GPUs.
- ``RUN_TIME_S``: for jobs of 1, 2, 4, 8 and at least 12 GPUs, the run times at the quantiles
  ``LEVELS``, in whole seconds. Between two of them the logarithm of the run time is taken as
  uniform; the mean run times then come out within 8 % of the trace's (8 301, 30 942, 78 762,
  129 775 and 95 326 s).
- ``QUEUE_EXPONENT``: the Zipf exponent with shares nearest (least squares) to those of the 11
  virtual clusters with more than 100 jobs.
- ``DAILY_SWING``: amplitude of the first harmonic of submissions by hour of day, relative to
  their mean.
- ``BURST_JOBS``, ``BURST_SIGMA``: mean submissions per hour in the busy 80 days from the 21st on,
  and the spread of a log-normal hourly rate that explains the variance of those counts (155
  times their mean), as variance / mean = 1 + mean (exp(sigma^2) - 1).

The flat trace does not say how jobs ended; ``KILLED`` and ``FAILED`` are the shares of the paper
(Jeon et al., ATC'19, table 6).
"""

from __future__ import annotations

GPUS = (
    (1, 76627),
    (2, 1818),
    (4, 1870),
    (8, 1643),
    (12, 7),
    (16, 199),
    (24, 7),
    (32, 67),
    (64, 6),
    (128, 3),
)
LEVELS = (0, 0.02, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.85, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1)
# fmt: off
RUN_TIME_S = {
    1: (1, 42, 62, 122, 600, 1117, 1728, 2716, 5342, 8512, 19137, 68252, 135399, 266914, 865709,
        3256045),
    2: (2, 7, 11, 16, 19, 21, 25, 76, 22255, 72740, 197062, 343862, 523316, 808064, 1474215,
        2582803),
    4: (3, 45, 138, 773, 7468, 17410, 36288, 89394, 151448, 184435, 273968, 533378, 907376,
        1205990, 2446301, 2750674),
    8: (1, 67, 216, 1876, 12382, 23683, 65014, 173248, 242252, 351982, 525618, 795161, 1060498,
        2000448, 2656479, 4628226),
    12: (1, 4, 72, 566, 3167, 21137, 53750, 104218, 181582, 247972, 443240, 613624, 922629,
         1274181, 1612502, 1710643),
}
# fmt: on
QUEUE_EXPONENT = 1.52
DAILY_SWING = 0.29
BURST_JOBS = 42.0
BURST_SIGMA = 1.24
KILLED = 0.135
FAILED = 0.172
