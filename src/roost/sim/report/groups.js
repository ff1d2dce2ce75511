// Where the differences lie: waits by cause, figures by queue and job size, and the small print.

// --- why jobs waited -----------------------------------------------------------------------------

const SPLITS = [
  { value: "time", label: "Time" },
  { value: "part", label: "Part" },
];
let split = "time";

function drawSplit() {
  const host = byId("split");
  const shown = shownPolicies();
  const totals = shown.map(({ waits }) => waits.reduce((sum, wait) => sum + (wait ?? 0), 0));
  const most = Math.max(1e-9, ...totals);
  const key = el(
    "ul",
    { class: "keys" },
    causes.map((cause) =>
      el(
        "li",
        { title: CAUSES[cause].meaning },
        el("i", { class: `cause-${cause}` }),
        CAUSES[cause].label,
      ),
    ),
  );
  const bars = shown.map((policy, i) =>
    el(
      "div",
      { class: "split-row" },
      el("span", { class: "split-name" }, policy.name),
      el(
        "div",
        { class: "split-track" },
        splitBar(
          policy.waits,
          totals[i],
          split === "part" ? Math.sign(totals[i]) : totals[i] / most,
          host.clientWidth * 0.6,
        ),
      ),
      el("span", { class: "split-total" }, duration(totals[i])),
    ),
  );
  host.replaceChildren(key, el("div", { class: "split" }, bars));
}

/** One bar cut by cause; width is the part of its track that it fills, room the track's pixels. */
function splitBar(waits, total, width, room = 0) {
  const pieces = causes
    .map((cause, i) => ({ cause, part: total > 0 ? (waits[i] ?? 0) / total : 0, wait: waits[i] }))
    .filter(({ part }) => part > 0);
  const label = pieces
    .map(
      ({ cause, part, wait }) =>
        `${CAUSES[cause].label.toLowerCase()} ${duration(wait)} (${percent(part, 0)})`,
    )
    .join(", ");
  return el(
    "div",
    {
      class: "split-bar",
      role: "img",
      "aria-label": label || "no waiting",
      style: { width: `${100 * width}%` },
    },
    pieces.map(({ cause, part, wait }) =>
      el(
        "span",
        {
          class: `cause-${cause}`,
          title: `${CAUSES[cause].label}: ${duration(wait)}, ${percent(part)} (${CAUSES[cause].meaning})`,
          style: { flex: `${part} 1 0` },
        },
        part * width * room > 36 ? percent(part, 0) : "",
      ),
    ),
  );
}

function splitTable() {
  return simpleTable(
    "Mean wait per job by cause",
    ["Policy", ...causes.flatMap((cause) => [CAUSES[cause].label, "part"]), "All"],
    shownPolicies().map((policy) => {
      const total = policy.waits.reduce((sum, wait) => sum + (wait ?? 0), 0);
      const cells = policy.waits.flatMap((wait) => [
        duration(wait),
        total > 0 && wait !== null ? percent(wait / total) : NONE,
      ]);
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
  const cut = queues.length > MAX_GROUPS ? ` (the ${MAX_GROUPS} largest of ${queues.length})` : "";
  byId("by-queue-h").textContent = `Queue${cut}`;
  drawGroupTable("by-queue", "Queue", queues.slice(0, MAX_GROUPS), "by_queue");
  drawGroupTable(
    "by-size",
    "GPUs per job",
    sizes.filter((size) => policies.some((policy) => policy.by_size[size])),
    "by_size",
  );
}

function drawGroupTable(id, caption, names, kind) {
  const index = contents.group_figures.indexOf(groupFigure);
  const shown = shownPolicies();
  const values = names.map((name) => shown.map((policy) => policy[kind][name]?.[index] ?? null));
  const unit = groupFigure === "jobs" ? "count" : figureOf(groupFigure).unit;
  const format = columnFormat(unit, values.flat());
  const jobs = contents.group_figures.indexOf("jobs");
  const head = names.map((name) =>
    el(
      "th",
      { scope: "col", class: "number" },
      pretty(name),
      el("small", {}, plural(Math.round(policies[0][kind][name]?.[jobs] ?? 0), "job")),
    ),
  );
  const rows = shown.map((policy, row) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, swatch(policy), policy.name),
      values.map((column) =>
        el(
          "td",
          { class: "number heat", style: heat(column, row) },
          column[row] === null ? NONE : format.write(column[row]),
        ),
      ),
    ),
  );
  const title = `${caption}: ${groupLabel(groupFigure)}${format.suffix ? `, in ${format.suffix}` : ""}`;
  byId(id).replaceChildren(
    el(
      "table",
      { class: "groups" },
      el("caption", { class: "hidden" }, title),
      el(
        "thead",
        {},
        el("tr", {}, el("th", { scope: "col" }, format.suffix ? `in ${format.suffix}` : ""), head),
      ),
      el("tbody", {}, rows),
    ),
  );
}

/** Tint a cell by how far it is from the best of its column. */
function heat(column, row) {
  const known = column.filter((value) => value !== null);
  if (NEUTRAL[groupFigure] || known.length < 2 || column[row] === null) return {};
  const best = Math.min(...known);
  const worst = Math.max(...known);
  const least = Math.max(best, worst / 1000, 1e-9);
  const part =
    Math.log(Math.max(column[row], least) / least) / Math.log(Math.max(worst / least, 1.5));
  return { "--heat": `${Math.round(part * 62)}%` };
}

function groupLabel(key) {
  return key === "jobs" ? "Jobs" : pretty(figureOf(key).label);
}

function startGroups() {
  const select = byId("groups-figure");
  fillSelect(
    select,
    contents.group_figures.map((key) => ({ value: key, label: groupLabel(key) })),
    groupFigure,
  );
  select.addEventListener("change", () => {
    groupFigure = select.value;
    drawGroups();
  });
}

// --- small print -----------------------------------------------------------------------------------

const MEANINGS = [
  [
    "JCT",
    "Job completion time: from submission to the end of the job, however it ended. Jobs that never ended are not in it.",
  ],
  [
    "Wait",
    "All the time a job did not run, before its first run and between runs, of all jobs. It splits into quota (its queue was over its quota), fragmentation (enough GPUs were free, but in pieces), capacity (not enough were free) and turn (there was room, but others went first).",
  ],
  [
    "GPUs held, useful",
    "GPU time that runs held, and that did work which was not lost, over GPU time in service between the first submission and the last end. By queue and by size: the group’s part of the whole cluster.",
  ],
  [
    "ρ, finish-time fairness",
    "JCT over the time the job would have taken alone on an equal part of the cluster: its run time × contention, where contention is the average of GPUs asked for over GPUs in service during its life, at least 1. Above 1 it got less than an equal part (in the style of Themis and Gavel).",
  ],
  [
    "Confidence",
    "Half-widths of 95 % intervals from Student’s t over seeds. Changes against the first policy pair runs of the same seed; with several seeds they are coloured only when their interval leaves out zero.",
  ],
];

function drawSmallPrint() {
  byId("meanings").replaceChildren(
    ...MEANINGS.flatMap(([word, meaning]) => [el("dt", {}, word), el("dd", {}, meaning)]),
  );
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
