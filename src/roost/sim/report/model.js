// What the page knows: the embedded contents, unpacked, and which policies are shown.

const contents = JSON.parse(byId("contents").textContent);
const { tick, figures, queues, causes } = contents;
const horizon = contents.horizon * tick;
const several = contents.seeds.length > 1;

const HUES = 8;
const DASHES = ["none", "7 3", "2 2.5", "9 3 2 3"];

const CAUSES = {
  quota: { label: "Quota", meaning: "its queue was over its quota" },
  fragmentation: { label: "Fragmentation", meaning: "enough GPUs were free, but in pieces" },
  capacity: { label: "Capacity", meaning: "not enough GPUs were free" },
  turn: { label: "Turn", meaning: "there was room, but others went first" },
};

const policies = contents.policies.map((policy, index) => ({
  ...policy,
  index,
  colour: `var(--policy-${index % HUES})`,
  dash: DASHES[(index + Math.floor(index / HUES)) % DASHES.length],
  series: { ...policy.series, at: sums(policy.series.at).map((at) => at * tick) },
}));

const figureAt = new Map(figures.map((figure, index) => [figure.key, index]));

/** The mean of a figure over the seeds of a policy. */
function meanOf(policy, key) {
  return policy.mean[figureAt.get(key)];
}

function figureOf(key) {
  return figures[figureAt.get(key)];
}

/** The policy with the best value of a figure, or null where that has no meaning. */
function bestOf(list, figure) {
  const known = list.filter((policy) => meanOf(policy, figure.key) !== null);
  if (!figure.better || known.length === 0) return null;
  const sign = figure.better === "low" ? 1 : -1;
  return known.reduce((best, policy) =>
    sign * meanOf(policy, figure.key) < sign * meanOf(best, figure.key) ? policy : best,
  );
}

/** Running sums: what was embedded as gaps becomes positions. */
function sums(gaps) {
  let total = 0;
  return gaps.map((gap) => (total += gap));
}

/** Average, least and greatest value of a step function in each of some equal parts of the time. */
function resample(series, kind, bins) {
  const { v, lo = v, hi = v } = series[kind];
  const width = horizon / bins;
  const mean = new Float64Array(bins);
  const low = new Float64Array(bins).fill(Infinity);
  const high = new Float64Array(bins).fill(-Infinity);
  series.at.forEach((from, i) => {
    const begin = Math.max(0, from);
    const end = Math.min(horizon, series.at[i + 1] ?? horizon);
    for (let bin = Math.floor(begin / width); bin < bins && bin * width < end; bin += 1) {
      const overlap = Math.min(end, (bin + 1) * width) - Math.max(begin, bin * width);
      if (overlap <= 0) continue;
      mean[bin] += (v[i] * overlap) / width;
      low[bin] = Math.min(low[bin], lo[i]);
      high[bin] = Math.max(high[bin], hi[i]);
    }
  });
  low.forEach((value, bin) => {
    if (value === Infinity) low[bin] = high[bin] = 0;
  });
  return { mean, low, high };
}

// --- which policies are shown, and which one in detail --------------------------------------

const hidden = new Set();
const watchers = [];
let inDetail = policies[0];

function shownPolicies() {
  return policies.filter((policy) => !hidden.has(policy.index));
}

/** Call draw now and whenever the choice of policies, the width or the theme changes. */
function watch(draw) {
  watchers.push(draw);
  draw();
}

const redrawAll = oncePerFrame(() => watchers.forEach((draw) => draw()));

function togglePolicy(policy) {
  if (hidden.has(policy.index)) hidden.delete(policy.index);
  else hidden.add(policy.index);
  if (shownPolicies().length === 0) hidden.clear();
  redrawAll();
}

const detailWatchers = [];

function watchDetail(change) {
  detailWatchers.push(change);
}

/** Show one policy in the timeline and in the table of jobs. */
function showInDetail(policy) {
  inDetail = policy;
  detailWatchers.forEach((change) => change());
}

/** The mark of a policy: a piece of its line. */
function swatch(policy) {
  return shape(
    "svg",
    { class: "swatch", width: 22, height: 10, "aria-hidden": "true" },
    shape("line", {
      x1: 1,
      x2: 21,
      y1: 5,
      y2: 5,
      stroke: policy.colour,
      "stroke-dasharray": policy.dash,
    }),
  );
}
