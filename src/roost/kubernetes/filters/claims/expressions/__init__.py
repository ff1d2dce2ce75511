"""What selectors of devices say: a subset of the Common Expression Language."""

from roost.kubernetes.filters.claims.expressions.evaluation import Expression as Expression
from roost.kubernetes.filters.claims.expressions.evaluation import compiled as compiled
from roost.kubernetes.filters.claims.expressions.values import Domains as Domains
from roost.kubernetes.filters.claims.expressions.values import EvaluationError as EvaluationError
from roost.kubernetes.filters.claims.expressions.values import Quantity as Quantity
from roost.kubernetes.filters.claims.expressions.values import Value as Value
from roost.kubernetes.filters.claims.expressions.values import quantity_of as quantity_of
from roost.kubernetes.filters.claims.expressions.values import version_of as version_of
