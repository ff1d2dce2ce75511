// What is said in figures: tiles, the comparison table, waits by cause, groups, and the small print.

function drawIntro() {
  const names = contents.workload;
  byId("title").textContent = names;
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
    ...facts.filter(([, value]) => value).map(([name, value]) => el("li", {}, el("span", {}, name), ` ${value}`)),
  );
  if (several) {
    document.querySelectorAll(".seed-note").forEach((note) => note.append(el("span", { class: "seed" }, `seed ${contents.seeds[0]}`)));
  }
}

function drawLegend() {
  byId("legend").replaceChildren(
    ...policies.map((policy) =>
      el("button", { type: "button", class: "chip", "aria-pressed": String(!hidden.has(policy.index)), title: "Show or hide in all charts", onclick: () => togglePolicy(policy) }, swatch(policy), policy.name),
    ),
  );
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
    el("p", { class: "tile-who" }, ...(best && !alone ? [swatch(best), el("b", {}, best.name), tileChange(best, figure)] : [figure.meaning])),
    alone ? null : microBars(figure, best),
  );
}

/** How much better the best policy is than the first, or than the next best if it is the first. */
function tileChange(best, figure) {
  const rival = best === policies[0] ? bestOf(policies.filter((policy) => policy !== best), figure) : policies[0];
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
      return el("span", { title: label, class: policy === best ? "winner" : null, style: { height, "background-color": policy.colour } });
    }),
  );
}

// --- the comparison table -----------------------------------------------------------------------

const KEY_FIGURES = ["jct_mean", "jct_median", "jct_p99", "makespan", "delay_mean", "gpu_allocation", "gpu_useful", "rho_mean", "preemptions"];
const comparison = { group: "Key figures", key: null, direction: 1 };

function drawComparison() {
  const chosen = figures.filter((figure) => inGroup(figure, comparison.group));
  const rows = sortedPolicies(shownPolicies());
  const formats = chosen.map((figure) => columnFormat(figure.unit, rows.map((policy) => meanOf(policy, figure.key))));
  const head = chosen.map((figure, i) =>
    sortHead({
      key: figure.key,
      label: [pretty(figure.label), formats[i].suffix ? el("small", {}, ` ${formats[i].suffix}`) : null].filter(Boolean),
      hint: pretty(figure.meaning),
      number: true,
      sorted: comparison.key === figure.key ? comparison.direction : 0,
      sort: sortComparison,
    }),
  );
  const table = el(
    "table",
    { class: "figures" },
    el("caption", { class: "hidden" }, "Every figure of every policy; press a column's head to sort by it"),
    el("thead", {}, el("tr", {}, sortHead({ key: "name", label: ["Policy"], sorted: comparison.key === "name" ? comparison.direction : 0, sort: sortComparison }), head)),
    el("tbody", {}, rows.map((policy) => comparisonRow(policy, rows, chosen, formats))),
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
    el("th", { scope: "row" }, swatch(policy), policy.name),
    chosen.map((figure, i) => comparisonCell(policy, figure, formats[i], isBest(policy, figure, rows))),
  );
}

function isBest(policy, figure, rows) {
  const best = bestOf(rows, figure);
  const values = rows.map((row) => meanOf(row, figure.key));
  return best !== null && rows.length > 1 && meanOf(policy, figure.key) === meanOf(best, figure.key) && new Set(values).size > 1;
}

function comparisonCell(policy, figure, format, best) {
  const index = figureAt.get(figure.key);
  const value = policy.mean[index];
  if (value === null) return el("td", { class: "number" }, NONE);
  const half = policy.half[index];
  return el(
    "td",
    { class: best ? "number best" : "number" },
    el("span", { class: "value" }, format.write(value), best ? el("span", { class: "hidden" }, " (best)") : null),
    half === null ? null : el("small", { class: "ci" }, `± ${format.write(half)}`),
    differenceNote(policy, figure, index),
  );
}

/** The change against the first policy, coloured only where chance alone would not explain it. */
function differenceNote(policy, figure, index) {
  const base = policies[0].mean[index];
  const text = policy.index === 0 ? null : change(policy.mean[index], base);
  if (!text) return policy.index === 0 && figure.better ? el("small", { class: "difference" }, "base") : null;
  const difference = policy.diff[index] ?? 0;
  const sure = policy.diff_half[index] === null ? difference !== 0 : Math.abs(difference) > policy.diff_half[index];
  const good = figure.better === "low" ? difference < 0 : difference > 0;
  return el("small", { class: `difference ${sure && figure.better ? (good ? "good" : "bad") : ""}` }, text);
}

function startComparison() {
  const groups = ["Key figures", ...new Set(figures.map((figure) => figure.group)), "All"];
  segmented(byId("compare-groups"), groups.map((group) => ({ value: group, label: group })), comparison.group, (group) => {
    comparison.group = group;
    drawComparison();
  });
  const base = policies.length > 1 ? `Small print: change against ${policies[0].name}. ` : "";
  byId("compare-note").textContent = several
    ? `Means over ${contents.seeds.length} seeds ± 95 % confidence. ${base}Green and red where seeds agree`
    : `${base}One seed, so no confidence intervals`;
}

// --- why jobs waited -----------------------------------------------------------------------------

function drawSplit() {
  const shown = shownPolicies();
  const totals = shown.map(({ waits }) => waits.reduce((sum, wait) => sum + (wait ?? 0), 0));
  const most = Math.max(1e-9, ...totals);
  const key = el("ul", { class: "keys" }, causes.map((cause) => el("li", { title: CAUSES[cause].meaning }, el("i", { class: `cause-${cause}` }), CAUSES[cause].label)));
  const bars = shown.map((policy, i) =>
    el(
      "div",
      { class: "split-row" },
      el("span", { class: "split-name" }, policy.name),
      el("div", { class: "split-track" }, splitBar(policy.waits, totals[i], totals[i] / most)),
      el("span", { class: "split-total" }, duration(totals[i])),
    ),
  );
  byId("split").replaceChildren(key, el("div", { class: "split" }, bars));
}

/** One bar cut by cause; width is the part of the track that it fills. */
function splitBar(waits, total, width) {
  const pieces = causes
    .map((cause, i) => ({ cause, part: total > 0 ? (waits[i] ?? 0) / total : 0, wait: waits[i] }))
    .filter(({ part }) => part > 0);
  const label = pieces.map(({ cause, part, wait }) => `${CAUSES[cause].label.toLowerCase()} ${duration(wait)} (${percent(part, 0)})`).join(", ");
  return el(
    "div",
    { class: "split-bar", role: "img", "aria-label": label || "no waiting", style: { width: `${100 * width}%` } },
    pieces.map(({ cause, part, wait }) =>
      el("span", { class: `cause-${cause}`, title: `${CAUSES[cause].label}: ${duration(wait)}, ${percent(part)} (${CAUSES[cause].meaning})`, style: { flex: `${part} 1 0` } }, part * width > 0.13 ? percent(part, 0) : ""),
    ),
  );
}

function splitTable() {
  return simpleTable(
    "Mean wait per job by cause",
    ["Policy", ...causes.flatMap((cause) => [CAUSES[cause].label, "part"]), "All"],
    shownPolicies().map((policy) => {
      const total = policy.waits.reduce((sum, wait) => sum + (wait ?? 0), 0);
      const cells = policy.waits.flatMap((wait) => [duration(wait), total > 0 && wait !== null ? percent(wait / total) : NONE]);
      return [policy.name, ...cells, duration(total)];
    }),
  );
}

// --- by queue and by job size ---------------------------------------------------------------------

const NEUTRAL = { jobs: true, gpu_allocation: true };
const MAX_GROUPS = 40;
let groupFigure = contents.group_figures[0];

function drawGroups() {
  const sizes = ["<1", "1", "2-4", "5-8", "9-16", "17+"];
  drawGroupTable("by-queue", "Queue", queues.slice(0, MAX_GROUPS), "by_queue");
  drawGroupTable("by-size", "GPUs per job", sizes.filter((size) => policies.some((policy) => policy.by_size[size])), "by_size");
}

function drawGroupTable(id, caption, names, kind) {
  const index = contents.group_figures.indexOf(groupFigure);
  const shown = shownPolicies();
  const values = names.map((name) => shown.map((policy) => policy[kind][name]?.[index] ?? null));
  const unit = groupFigure === "jobs" ? "count" : figureOf(groupFigure).unit;
  const format = columnFormat(unit, values.flat());
  const jobs = contents.group_figures.indexOf("jobs");
  const head = names.map((name) =>
    el("th", { scope: "col", class: "number" }, pretty(name), el("small", {}, plural(Math.round(policies[0][kind][name]?.[jobs] ?? 0), "job"))),
  );
  const rows = shown.map((policy, row) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, swatch(policy), policy.name),
      values.map((column) => el("td", { class: "number heat", style: heat(column, row) }, column[row] === null ? NONE : format.write(column[row]))),
    ),
  );
  const title = `${caption}: ${groupLabel(groupFigure)}${format.suffix ? `, in ${format.suffix}` : ""}`;
  byId(id).replaceChildren(
    el("table", { class: "groups" }, el("caption", { class: "hidden" }, title), el("thead", {}, el("tr", {}, el("th", { scope: "col" }, format.suffix ? `in ${format.suffix}` : ""), head)), el("tbody", {}, rows)),
  );
}

/** Tint a cell by how far it is from the best of its column. */
function heat(column, row) {
  const known = column.filter((value) => value !== null);
  if (NEUTRAL[groupFigure] || known.length < 2 || column[row] === null) return {};
  const best = Math.min(...known);
  const worst = Math.max(...known);
  const least = Math.max(best, worst / 1000, 1e-9);
  const part = Math.log(Math.max(column[row], least) / least) / Math.log(Math.max(worst / least, 1.5));
  return { "--heat": `${Math.round(part * 62)}%` };
}

function groupLabel(key) {
  return key === "jobs" ? "Jobs" : pretty(figureOf(key).label);
}

function startGroups() {
  const select = byId("groups-figure");
  fillSelect(select, contents.group_figures.map((key) => ({ value: key, label: groupLabel(key) })), groupFigure);
  select.addEventListener("change", () => {
    groupFigure = select.value;
    drawGroups();
  });
}

// --- small print -----------------------------------------------------------------------------------

const MEANINGS = [
  ["JCT", "Job completion time: from submission to the end of the job, however it ended. Jobs that never ended are not in it."],
  ["Wait", "All the time a job did not run, before its first run and between runs, of all jobs. It splits into quota (its queue was over its quota), fragmentation (enough GPUs were free, but in pieces), capacity (not enough were free) and turn (there was room, but others went first)."],
  ["GPUs held, useful", "GPU time that runs held, and that did work which was not lost, over GPU time in service between the first submission and the last end. By queue and by size: the group’s part of the whole cluster."],
  ["ρ, finish-time fairness", "JCT over the time the job would have taken alone on an equal part of the cluster: its run time × contention, where contention is the average of GPUs asked for over GPUs in service during its life, at least 1. Above 1 it got less than an equal part (in the style of Themis and Gavel)."],
  ["Confidence", "Half-widths of 95 % intervals from Student’s t over seeds. Changes against the first policy pair runs of the same seed; they are coloured only when their interval leaves out zero."],
];

function drawSmallPrint() {
  byId("meanings").replaceChildren(...MEANINGS.flatMap(([word, meaning]) => [el("dt", {}, word), el("dd", {}, meaning)]));
  byId("cost").replaceChildren(
    simpleTable(
      "What the simulation cost, all seeds together",
      ["Simulation of", "Seeds", "Events", "Decisions", "Wall time", "CPU time", "Events/s"],
      policies.map((policy) => [
        policy.name,
        String(policy.seeds.length),
        whole(policy.events),
        whole(policy.decisions),
        duration(policy.wall_s),
        duration(policy.cpu_s),
        policy.wall_s > 0 ? whole(policy.events / policy.wall_s) : NONE,
      ]),
    ),
  );
}
