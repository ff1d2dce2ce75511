// What is said first: the title, the legend, the tiles and the comparison table.

function drawIntro() {
  byId("title").textContent = contents.workload;
  const even = contents.nodes && contents.gpus % contents.nodes === 0;
  const cluster = even
    ? `${plural(contents.nodes, "node")} × ${plural(contents.gpus / contents.nodes, "GPU")}`
    : `${plural(contents.nodes, "node")}, ${plural(contents.gpus, "GPU")}`;
  const placers = [...new Set(policies.map((policy) => policy.placer))].filter(Boolean);
  const facts = [
    ["Cluster", cluster],
    ["Jobs", whole(contents.jobs)],
    ["Policies", String(policies.length)],
    [several ? "Seeds" : "Seed", contents.seeds.join(", ")],
    ["Lasted", moment(horizon)],
    [placers.length > 1 ? "Placers" : "Placer", placers.join(", ")],
  ];
  byId("facts").replaceChildren(
    ...facts
      .filter(([, value]) => value)
      .map(([name, value]) => el("li", {}, el("span", {}, name), ` ${value}`)),
  );
  if (several) {
    document.querySelector(".all-seeds").textContent = ". All seeds together";
    document
      .querySelectorAll(".seed-note")
      .forEach((note) => note.append(el("span", { class: "seed" }, `seed ${contents.seeds[0]}`)));
  }
}

function drawLegend() {
  byId("legend").replaceChildren(
    ...policies.map((policy) =>
      el(
        "button",
        {
          type: "button",
          class: "chip",
          "aria-pressed": String(!hidden.has(policy.index)),
          title: "Show or hide in all charts",
          onclick: () => togglePolicy(policy),
          onpointerenter: () => highlight(policy),
          onpointerleave: () => highlight(null),
        },
        swatch(policy),
        policy.name,
      ),
    ),
  );
}

/** Let one policy's lines stand out in all charts, or none's. */
function highlight(policy) {
  for (const line of document.querySelectorAll("[data-policy]")) {
    line.classList.toggle(
      "dimmed",
      policy !== null && line.dataset.policy !== String(policy.index),
    );
  }
}

// --- tiles -------------------------------------------------------------------------------------

const TILES = [
  { key: "jct_mean", one: "Mean completion time", many: "Shortest mean completion" },
  { key: "jct_p99", one: "p99 completion time", many: "Shortest p99 completion" },
  { key: "delay_mean", one: "Mean wait", many: "Least waiting" },
  { key: "makespan", one: "Makespan", many: "Shortest makespan" },
  { key: "gpu_useful", one: "Useful GPU time", many: "Most useful GPU time" },
  { key: "rho_mean", one: "Mean unfairness ρ", many: "Fairest, by mean ρ" },
];

function drawTiles() {
  byId("tiles").replaceChildren(...TILES.map(tile));
}

function tile({ key, one, many }) {
  const figure = figureOf(key);
  const best = bestOf(policies, figure);
  const value = best && meanOf(best, key);
  const alone = policies.length === 1;
  return el(
    "article",
    { class: "tile" },
    el("h2", { class: "tile-label" }, alone ? one : many),
    el("p", { class: "tile-value" }, value === null ? NONE : figureText(figure.unit, value)),
    el(
      "p",
      { class: "tile-who" },
      ...(best && !alone
        ? [swatch(best), el("b", {}, best.name), tileChange(best, figure)]
        : [figure.meaning]),
    ),
    alone ? null : microBars(figure, best),
  );
}

/** How much better the best policy is than the first, or than the next best if it is the first. */
function tileChange(best, figure) {
  const rival =
    best === policies[0]
      ? bestOf(
          policies.filter((policy) => policy !== best),
          figure,
        )
      : policies[0];
  const text = rival && change(meanOf(best, figure.key), meanOf(rival, figure.key));
  if (!text) return null;
  return el("span", { class: "tile-change" }, el("em", {}, text), ` against ${rival.name}`);
}

function microBars(figure, best) {
  const most = Math.max(1e-12, ...policies.map((policy) => meanOf(policy, figure.key) ?? 0));
  return el(
    "div",
    { class: "micro", "aria-hidden": "true" },
    policies.map((policy) => {
      const value = meanOf(policy, figure.key);
      const height = `${Math.max(4, (100 * (value ?? 0)) / most)}%`;
      const label = `${policy.name}: ${figureText(figure.unit, value)}`;
      return el("span", {
        title: label,
        class: policy === best ? "winner" : null,
        style: { height, "background-color": policy.colour },
      });
    }),
  );
}

// --- the comparison table -----------------------------------------------------------------------

const KEY_FIGURES = [
  "jct_mean",
  "jct_median",
  "jct_p99",
  "makespan",
  "delay_mean",
  "gpu_allocation",
  "gpu_useful",
  "rho_mean",
  "preemptions",
];
const comparison = { group: "Key figures", key: null, direction: 1 };

function drawComparison() {
  const chosen = figures.filter((figure) => inGroup(figure, comparison.group));
  const rows = sortedPolicies(shownPolicies());
  const formats = chosen.map((figure) =>
    columnFormat(
      figure.unit,
      rows.map((policy) => meanOf(policy, figure.key)),
    ),
  );
  const head = chosen.map((figure, i) =>
    sortHead({
      key: figure.key,
      label: [
        pretty(figure.label),
        formats[i].suffix ? el("small", {}, ` ${formats[i].suffix}`) : null,
      ].filter(Boolean),
      hint: pretty(figure.meaning),
      number: true,
      sorted: comparison.key === figure.key ? comparison.direction : 0,
      sort: sortComparison,
    }),
  );
  const table = el(
    "table",
    { class: "figures" },
    el(
      "caption",
      { class: "hidden" },
      "Every figure of every policy; press a column's head to sort by it",
    ),
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        sortHead({
          key: "name",
          label: ["Policy"],
          sorted: comparison.key === "name" ? comparison.direction : 0,
          sort: sortComparison,
        }),
        head,
      ),
    ),
    el(
      "tbody",
      {},
      rows.map((policy) => comparisonRow(policy, rows, chosen, formats)),
    ),
  );
  byId("compare-table").replaceChildren(table);
}

function inGroup(figure, group) {
  if (group === "All") return true;
  return group === "Key figures" ? KEY_FIGURES.includes(figure.key) : figure.group === group;
}

function sortComparison(key) {
  const first = key !== "name" && figureOf(key).better === "high" ? -1 : 1;
  comparison.direction = comparison.key === key ? -comparison.direction : first;
  comparison.key = key;
  drawComparison();
  byId("compare-table").querySelector(`[data-key="${key}"]`).focus();
}

function sortedPolicies(list) {
  const { key, direction } = comparison;
  if (key === null) return list;
  const value = key === "name" ? (policy) => policy.name : (policy) => meanOf(policy, key);
  return [...list].sort((a, b) => direction * compareValues(value(a), value(b), direction));
}

/** Order two values; what is not known comes last whichever the direction. */
function compareValues(a, b, direction) {
  if (a === b) return 0;
  if (a === null) return direction;
  if (b === null) return -direction;
  return a < b ? -1 : 1;
}

function comparisonRow(policy, rows, chosen, formats) {
  return el(
    "tr",
    {},
    el(
      "th",
      { scope: "row" },
      swatch(policy),
      policy.name,
      policy.index === 0 && policies.length > 1 ? el("small", {}, "baseline") : null,
    ),
    chosen.map((figure, i) =>
      comparisonCell(policy, figure, formats[i], isBest(policy, figure, rows)),
    ),
  );
}

function isBest(policy, figure, rows) {
  const best = bestOf(rows, figure);
  const values = rows.map((row) => meanOf(row, figure.key));
  return (
    best !== null &&
    rows.length > 1 &&
    meanOf(policy, figure.key) === meanOf(best, figure.key) &&
    new Set(values).size > 1
  );
}

function comparisonCell(policy, figure, format, best) {
  const index = figureAt.get(figure.key);
  const value = policy.mean[index];
  if (value === null) return el("td", { class: "number" }, NONE);
  const half = policy.half[index];
  return el(
    "td",
    { class: best ? "number best" : "number" },
    el(
      "span",
      { class: "value" },
      format.write(value),
      best ? el("span", { class: "hidden" }, " (best)") : null,
    ),
    half === null ? null : el("small", { class: "ci" }, `± ${format.write(half)}`),
    differenceNote(policy, figure, index),
  );
}

/** The change against the first policy, coloured only where chance alone would not explain it. */
function differenceNote(policy, figure, index) {
  const base = policies[0].mean[index];
  const text = policy.index === 0 ? null : change(policy.mean[index], base);
  if (!text) return null;
  const difference = policy.diff[index] ?? 0;
  const sure =
    policy.diff_half[index] === null
      ? difference !== 0
      : Math.abs(difference) > policy.diff_half[index];
  const good = figure.better === "low" ? difference < 0 : difference > 0;
  return el(
    "small",
    { class: `difference ${sure && figure.better ? (good ? "good" : "bad") : ""}` },
    text,
  );
}

function startComparison() {
  const groups = ["Key figures", ...new Set(figures.map((figure) => figure.group)), "All"];
  segmented(
    byId("compare-groups"),
    groups.map((group) => ({ value: group, label: group })),
    comparison.group,
    (group) => {
      comparison.group = group;
      drawComparison();
    },
  );
  const base = policies.length > 1 ? `Small: change against ${policies[0].name}. ` : "";
  byId("compare-note").textContent = several
    ? `Means over ${contents.seeds.length} seeds ± 95 % confidence. ${base}Green or red where the seeds agree on it`
    : `${base}One seed, so no confidence intervals`;
}
