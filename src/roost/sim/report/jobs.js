// The table of jobs: find, filter, sort, turn pages; and the way from a job to its bars.

const PAGE = 25;
const list = { key: "wait", direction: -1, page: 0, text: "", queue: "" };

/** Columns: how a job's value is computed for sorting, and written. `at` is its row of the table. */
const JOB_COLUMNS = [
  { key: "id", label: "Job", value: (at) => idOf(jobAt(at)) },
  { key: "queue", label: "Queue", value: (at) => queues[intake().queue[jobAt(at)]] },
  {
    key: "gpus",
    label: "GPUs",
    number: true,
    value: (at) => intake().gpus[jobAt(at)],
    write: amount,
  },
  { key: "outcome", label: "Outcome", value: (at) => contents.outcomes[inDetail.jobs.outcome[at]] },
  {
    key: "submitted",
    label: "Submitted",
    number: true,
    value: (at) => intake().submitted[jobAt(at)] * tick,
    write: moment,
  },
  {
    key: "jct",
    label: "JCT",
    hint: "from submission to the end",
    number: true,
    value: jctAt,
    write: duration,
  },
  {
    key: "slowdown",
    label: "Slowdown",
    hint: "JCT over run time alone",
    number: true,
    value: slowdownAt,
    write: (value) => `${decimal(value)}×`,
  },
  {
    key: "wait",
    label: "Waited",
    hint: "all the time it did not run",
    number: true,
    value: waitAt,
    write: duration,
  },
  ...causes.map((cause, i) => ({
    key: cause,
    label: CAUSES[cause].label,
    hint: `waited because ${CAUSES[cause].meaning}`,
    number: true,
    faint: true,
    value: (at) => inDetail.jobs.waits[i][at] * tick,
    write: (seconds) => (seconds > 0 ? duration(seconds) : NONE),
  })),
  { key: "runs", label: "Runs", number: true, value: (at) => inDetail.jobs.runs[at], write: whole },
  {
    key: "lost",
    label: "Lost",
    hint: "GPU hours thrown away or spent on restarts",
    number: true,
    value: (at) => inDetail.jobs.lost[at],
    write: (hours) => (hours > 0 ? `${decimal(hours)} GPU h` : NONE),
  },
];

/** The job in a row of the table. */
function jobAt(at) {
  return intake().table[at];
}

/** The row of a job in the table, or -1 if it is not among those embedded. */
function tableRowOf(job) {
  const { table } = intake();
  let low = 0;
  let high = table.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (table[middle] < job) low = middle + 1;
    else high = middle;
  }
  return table[low] === job ? low : -1;
}

function jctAt(at) {
  const jct = inDetail.jobs.jct[at];
  return jct === null ? null : jct * tick;
}

function slowdownAt(at) {
  const work = intake().work[jobAt(at)];
  const jct = inDetail.jobs.jct[at];
  return jct === null || work === 0 ? null : jct / work;
}

function waitAt(at) {
  return inDetail.jobs.waits.reduce((sum, waits) => sum + waits[at], 0) * tick;
}

/** What happened to a job, for its card under the timeline. */
function jobFacts(at) {
  const waits = causes
    .map((cause, i) => [CAUSES[cause].label.toLowerCase(), inDetail.jobs.waits[i][at] * tick])
    .filter(([, wait]) => wait > 0);
  return [
    ["Outcome", contents.outcomes[inDetail.jobs.outcome[at]]],
    ["JCT", duration(jctAt(at))],
    [
      "Waited",
      waits.length
        ? `${duration(waitAt(at))} (${waits.map(([cause, wait]) => `${cause} ${duration(wait)}`).join(", ")})`
        : duration(waitAt(at)),
    ],
    ["Runs", whole(inDetail.jobs.runs[at])],
    ["Preemptions", whole(inDetail.jobs.preemptions[at])],
    ["Resizes", whole(inDetail.jobs.resizes[at])],
  ];
}

/** Rows that match the search, in the chosen order. */
function matching() {
  const column = JOB_COLUMNS.find(({ key }) => key === list.key);
  const wanted = list.text.trim().toLowerCase();
  const rows = [];
  for (let at = 0; at < intake().table.length; at += 1) {
    if (list.queue !== "" && intake().queue[jobAt(at)] !== Number(list.queue)) continue;
    if (wanted && !searchText(at).includes(wanted)) continue;
    rows.push({ at, value: column.value(at) });
  }
  return rows.sort(
    (a, b) => list.direction * compareValues(a.value, b.value, list.direction) || a.at - b.at,
  );
}

function searchText(at) {
  return `${idOf(jobAt(at))} ${contents.outcomes[inDetail.jobs.outcome[at]]}`.toLowerCase();
}

const drawJobs = oncePerFrame(() => {
  const rows = matching();
  const pages = Math.max(1, Math.ceil(rows.length / PAGE));
  list.page = Math.max(0, Math.min(list.page, pages - 1));
  const page = rows.slice(list.page * PAGE, (list.page + 1) * PAGE);
  const longest = Math.max(1e-9, ...page.map(({ at }) => waitAt(at)));
  const head = JOB_COLUMNS.map((column) =>
    sortHead({
      ...column,
      label: [column.label],
      sorted: list.key === column.key ? list.direction : 0,
      sort: sortJobs,
    }),
  );
  const focused = document.activeElement?.dataset?.key;
  byId("jobs-table").replaceChildren(
    el(
      "table",
      { class: "jobs" },
      el("caption", { class: "hidden" }, `Jobs under ${inDetail.name}`),
      el("thead", {}, el("tr", {}, head)),
      el(
        "tbody",
        {},
        page.map(({ at }) => jobRow(at, longest)),
      ),
    ),
    ...(rows.length ? [] : [el("p", { class: "empty" }, "No job matches.")]),
  );
  if (focused) byId("jobs-table").querySelector(`[data-key="${focused}"]`)?.focus();
  drawPager(rows.length, pages);
});

function jobRow(at, longest) {
  return el(
    "tr",
    {},
    JOB_COLUMNS.map((column) => jobCell(column, at, longest)),
  );
}

function jobCell(column, at, longest) {
  const value = column.value(at);
  const text = value === null ? NONE : column.write ? column.write(value) : value;
  if (column.key === "id") {
    const hasBars = inDetail.bars.total > 0;
    return el(
      "th",
      { scope: "row" },
      hasBars
        ? el(
            "button",
            {
              type: "button",
              class: "link",
              title: "Show in the timeline",
              onclick: () => goTo(jobAt(at)),
            },
            text,
          )
        : text,
    );
  }
  if (column.key === "wait") {
    const waits = inDetail.jobs.waits.map((ticks) => ticks[at] * tick);
    return el(
      "td",
      { class: "number wait" },
      text,
      el("div", { class: "wait-bar" }, splitBar(waits, value, value / longest)),
    );
  }
  if (column.key === "outcome")
    return el("td", {}, el("span", { class: `outcome outcome-${outcomeKind(text)}` }, text));
  return el(
    "td",
    { class: `${column.number ? "number" : ""} ${column.faint ? "faint" : ""}` },
    text,
  );
}

function outcomeKind(outcome) {
  return { succeeded: "good", failed: "bad" }[outcome] ?? "other";
}

function sortJobs(key) {
  const number = JOB_COLUMNS.find((column) => column.key === key).number;
  list.direction = list.key === key ? -list.direction : number ? -1 : 1;
  list.key = key;
  list.page = 0;
  drawJobs();
}

function drawPager(count, pages) {
  const turn = (page) => () => {
    list.page = page;
    drawJobs();
  };
  const first = list.page * PAGE + 1;
  const last = Math.min(count, (list.page + 1) * PAGE);
  const button = (label, text, page, off) =>
    el("button", { type: "button", "aria-label": label, disabled: off, onclick: turn(page) }, text);
  byId("jobs-pager").replaceChildren(
    el(
      "span",
      { role: "status" },
      count ? `${whole(first)}–${whole(last)} of ${whole(count)}` : "0 jobs",
    ),
    el(
      "div",
      { class: "segmented" },
      button("First page", "«", 0, list.page === 0),
      button("Page before", "‹", list.page - 1, list.page === 0),
      button("Next page", "›", list.page + 1, list.page >= pages - 1),
      button("Last page", "»", pages - 1, list.page >= pages - 1),
    ),
  );
}

function describeJobs() {
  const { total, every, longest, table } = intake();
  const sample =
    every > 1
      ? `${whole(table.length)} of ${whole(total)} jobs: the ${whole(longest)} that waited longest under any policy, and one in ${every} of the others`
      : `All ${whole(total)} jobs`;
  byId("jobs-note").textContent = sample;
}

function startJobs() {
  const queue = byId("jobs-queue");
  fillSelect(
    queue,
    [{ value: "", label: "all" }, ...queues.map((name, i) => ({ value: String(i), label: name }))],
    "",
  );
  queue.addEventListener("change", () => search({ queue: queue.value }));
  byId("jobs-search").addEventListener("input", (event) => search({ text: event.target.value }));
  describeJobs();
  drawJobs();
  watchDetail(() => {
    describeJobs();
    drawJobs();
  });
}

function search(wanted) {
  Object.assign(list, wanted, { page: 0 });
  drawJobs();
}
