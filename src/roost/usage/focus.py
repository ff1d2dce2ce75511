"""FOCUS 1.2, the cost format that finance tools read: one charge for each job and day.

https://focus.finops.org/focus-specification/v1-2/. Quantities are GPU hours. A charge without a
price has no cost: its columns are empty, not 0.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roost.api.usage import UsageView

COLUMNS: Final = (
    *("BillingAccountId", "BillingAccountName", "BillingPeriodStart", "BillingPeriodEnd"),
    *("ChargePeriodStart", "ChargePeriodEnd", "ChargeCategory", "ChargeClass"),
    *("ChargeDescription", "ChargeFrequency", "BillingCurrency"),
    *("BilledCost", "EffectiveCost", "ListCost", "ContractedCost"),
    *("ConsumedQuantity", "ConsumedUnit", "PricingQuantity", "PricingUnit", "PricingCategory"),
    *("ProviderName", "PublisherName", "InvoiceIssuerName", "ServiceName", "ServiceCategory"),
    *("ResourceId", "ResourceName", "ResourceType", "SubAccountId", "SubAccountName", "Tags"),
)
_GPU_HOUR = 3600 * 1_000_000


def charges(day: UsageView) -> Iterator[dict[str, str]]:
    """The charges of a day's usage by job, user and queue."""
    begin = datetime.fromtimestamp(day.since, UTC)
    month = begin.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    later = month.replace(year=month.year + month.month // 12, month=month.month % 12 + 1)
    for row in day.rows:
        if not row.held:
            continue
        job, user, queue = (row.keys.get(key, "") for key in ("job", "user", "queue"))
        cost = "" if row.cost is None else f"{row.cost:.6f}"
        hours = f"{row.held / _GPU_HOUR:.9f}"
        yield dict(
            zip(
                COLUMNS,
                (
                    *("roost", "Roost", _at(month), _at(later)),
                    *(_at(begin), _at(datetime.fromtimestamp(day.until, UTC))),
                    *("Usage", "", f"GPUs held by job {job}", "Usage-Based", day.currency),
                    *(cost, cost, cost, cost),
                    *(hours, "GPU-Hours", hours, "GPU-Hours", "Standard"),
                    *("Roost", "Roost", "Roost", "Roost", "AI and Machine Learning"),
                    *(job, job, "Job", queue, queue, json.dumps({"user": user})),
                ),
                strict=True,
            )
        )


def _at(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
