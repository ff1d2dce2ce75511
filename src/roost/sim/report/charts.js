// Charts drawn as SVG: the frame with its axes, lines, areas, and the read-out under the pointer.

/** Make an empty chart as wide as its host; x and y map fractions of the plot to pixels. */
function plot(host, { height, label, left = 46, right = 10, top = 10, bottom = 28 }) {
  const width = Math.max(220, host.clientWidth);
  const svg = shape("svg", {
    class: "plot",
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    role: "img",
    "aria-label": label,
    tabindex: 0,
  });
  const inner = { x: left, y: top, width: width - left - right, height: height - top - bottom };
  host.replaceChildren(svg);
  return {
    svg,
    inner,
    x: (fraction) => inner.x + fraction * inner.width,
    y: (fraction) => inner.y + (1 - fraction) * inner.height,
  };
}

/** Draw a horizontal grid; ticks are {at, text}, where at is a fraction of the height. */
function yAxis(chart, ticks) {
  for (const { at, text } of ticks) {
    const y = Math.round(chart.y(at)) + 0.5;
    chart.svg.append(
      shape("line", { class: "grid", x1: chart.x(0), x2: chart.x(1), y1: y, y2: y }),
      shape(
        "text",
        { class: "tick", x: chart.inner.x - 8, y: y + 3.5, "text-anchor": "end" },
        text,
      ),
    );
  }
}

function xAxis(chart, ticks) {
  const bottom = chart.y(0);
  for (const { at, text } of ticks) {
    const x = Math.round(chart.x(at)) + 0.5;
    chart.svg.append(
      shape("line", { class: "tick-mark", x1: x, x2: x, y1: bottom, y2: bottom + 4 }),
      shape("text", { class: "tick", x, y: bottom + 18, "text-anchor": anchor(at) }, text),
    );
  }
}

function anchor(at) {
  if (at > 0.97) return "end";
  return at < 0.01 ? "start" : "middle";
}

function timeAxis(chart) {
  const { ticks, write } = timeTicks(0, horizon, Math.max(3, chart.inner.width / 82));
  xAxis(
    chart,
    ticks.map((seconds) => ({ at: seconds / horizon, text: seconds === 0 ? "0" : write(seconds) })),
  );
}

function valueAxis(chart, max, count, write = decimal) {
  yAxis(
    chart,
    linearTicks(max, count).map((value) => ({ at: value / max, text: write(value) })),
  );
}

/** A path through points given as fractions of the plot. */
function pathOf(chart, points) {
  return points
    .map(([x, y], i) => `${i ? "L" : "M"}${chart.x(x).toFixed(1)} ${chart.y(y).toFixed(1)}`)
    .join("");
}

/** A path around the area between two lines of bin values, each a fraction of the height. */
function bandOf(chart, low, high) {
  const forth = pathOf(chart, binPoints(high));
  const back = pathOf(chart, binPoints(low).reverse()).replace("M", "L");
  return `${forth}${back}Z`;
}

function binPoints(values) {
  const points = Array.from(values, (value, bin) => [(bin + 0.5) / values.length, value]);
  return [[0, values[0]], ...points, [1, values[values.length - 1]]];
}

/**
 * Follow the pointer or the arrow keys over some charts with the same x axis.
 *
 * read(fraction) gives {title, rows, dots}; dots are {x, y, colour} fractions, for one chart only.
 */
function readOut(charts, read) {
  const marks = charts.map(() => shape("g", { class: "cross", visibility: "hidden" }));
  charts.forEach((chart, i) => chart.svg.append(marks[i]));
  let current = 0.5;

  function show(fraction, x, y) {
    current = Math.min(1, Math.max(0, fraction));
    const { title, rows, dots = [] } = read(current);
    charts.forEach((chart, i) => drawCross(chart, marks[i], current, dots));
    showTip(x, y, title, rows);
  }
  function hide() {
    marks.forEach((mark) => mark.setAttribute("visibility", "hidden"));
    hideTip();
  }
  for (const chart of charts) {
    const fractionAt = (event) =>
      (event.clientX - chart.svg.getBoundingClientRect().left - chart.inner.x) / chart.inner.width;
    const showHere = (fraction) => {
      const box = chart.svg.getBoundingClientRect();
      show(fraction, box.left + chart.x(fraction), box.top + 20);
    };
    chart.svg.addEventListener("pointermove", (event) =>
      show(fractionAt(event), event.clientX, event.clientY),
    );
    chart.svg.addEventListener("pointerleave", hide);
    chart.svg.addEventListener("blur", hide);
    chart.svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -0.01, ArrowRight: 0.01, PageDown: -0.1, PageUp: 0.1 }[event.key];
      if (event.key === "Escape") hide();
      if (step === undefined) return;
      event.preventDefault();
      showHere(Math.min(1, Math.max(0, current + step)));
    });
  }
}

function drawCross(chart, mark, fraction, dots) {
  const x = chart.x(fraction);
  mark.replaceChildren(
    shape("line", { x1: x, x2: x, y1: chart.y(1), y2: chart.y(0) }),
    ...dots.map((dot) =>
      shape("circle", { cx: chart.x(dot.x), cy: chart.y(dot.y), r: 3.5, fill: dot.colour }),
    ),
  );
  mark.setAttribute("visibility", "visible");
}

// --- completion times -------------------------------------------------------------------------

/** The part of jobs done within some seconds. */
function doneWithin({ x, y }, seconds) {
  let low = 0;
  let high = x.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] <= seconds) low = middle + 1;
    else high = middle;
  }
  return low ? y[low - 1] : 0;
}

/** The time within which a part of all jobs was done, or null if it never was. */
function timeFor({ x, y }, part) {
  const index = y.findIndex((value) => value >= part - 1e-9);
  return index < 0 ? null : x[index];
}

function drawCompletion() {
  const shown = shownPolicies().filter(({ cdf }) => cdf.x.length > 0);
  const host = byId("cdf");
  if (shown.length === 0)
    return host.replaceChildren(el("p", { class: "empty" }, "No job finished."));
  const all = shown.flatMap(({ cdf }) => cdf.x).filter((seconds) => seconds > 0);
  const from = Math.log(smallest([...all, largest([tick, ...all])]));
  const to = Math.max(from + 0.1, Math.log(largest([tick, ...all])));
  const place = (seconds) => (Math.log(Math.max(seconds, Math.exp(from))) - from) / (to - from);
  const chart = plot(host, {
    height: 330,
    label: "Distribution of completion times, one line per policy",
  });
  yAxis(
    chart,
    [0, 0.25, 0.5, 0.75, 1].map((at) => ({ at, text: `${at * 100} %` })),
  );
  const marks = logTicks(Math.exp(from), Math.exp(to), (mark) => chart.x(place(mark)));
  xAxis(
    chart,
    marks.map((mark) => ({ at: place(mark), text: moment(mark) })),
  );
  for (const policy of shown) {
    const { x, y } = policy.cdf;
    const steps = x.flatMap((seconds, i) => [
      [place(seconds), i ? y[i - 1] : 0],
      [place(seconds), y[i]],
    ]);
    chart.svg.append(
      shape("path", {
        class: "line",
        d: pathOf(chart, [...steps, [1, y[y.length - 1]]]),
        stroke: policy.colour,
        "stroke-dasharray": policy.dash,
        "data-policy": policy.index,
      }),
    );
  }
  readOut([chart], (fraction) => {
    const seconds = Math.exp(from + fraction * (to - from));
    const rows = shown.map((policy) => ({ policy, part: doneWithin(policy.cdf, seconds) }));
    return {
      title: `Done within ${duration(seconds)}`,
      rows: rows
        .sort((a, b) => b.part - a.part)
        .map(({ policy, part }) => ({
          name: policy.name,
          value: percent(part),
          swatch: swatch(policy),
        })),
      dots: rows.map(({ policy, part }) => ({ x: fraction, y: part, colour: policy.colour })),
    };
  });
}

function smallest(values) {
  return values.reduce((least, value) => Math.min(least, value), Infinity);
}

function largest(values) {
  return values.reduce((most, value) => Math.max(most, value), -Infinity);
}

function completionTable() {
  const parts = [0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99];
  return simpleTable(
    "Time within which a part of all jobs was done",
    ["Policy", ...parts.map((part) => `${Math.round(part * 100)} %`)],
    shownPolicies().map((policy) => [
      policy.name,
      ...parts.map((part) => duration(timeFor(policy.cdf, part))),
    ]),
  );
}

// --- GPUs over time ---------------------------------------------------------------------------

function drawUse() {
  const shown = shownPolicies();
  const host = byId("use-charts");
  const most =
    Math.max(
      1e-9,
      ...policies.flatMap(({ series }) => [
        largest(series.capacity.hi ?? series.capacity.v),
        largest(series.allocated.hi ?? series.allocated.v),
      ]),
    ) * 1.04;
  const boxes = shown.map((policy) =>
    el("figure", { class: "multiple" }, useTitle(policy), el("div", { class: "chart" })),
  );
  host.replaceChildren(...boxes);
  const drawn = boxes.map((box, i) => drawOneUse(box.lastChild, shown[i], most));
  readOut(
    drawn.map(({ chart }) => chart),
    (fraction) => ({
      title: `After ${moment(fraction * horizon)}`,
      rows: drawn.map(({ held, useful }, i) => ({
        name: shown[i].name,
        value: `${decimal(held.mean[binAt(held.mean, fraction)])} held, ${decimal(useful.mean[binAt(useful.mean, fraction)])} useful`,
        swatch: swatch(shown[i]),
      })),
    }),
  );
}

function useTitle(policy) {
  const held = meanOf(policy, "gpu_allocation");
  const useful = meanOf(policy, "gpu_useful");
  const note = held === null ? "" : `${percent(held)} held, ${percent(useful)} useful`;
  return el("figcaption", {}, swatch(policy), el("b", {}, policy.name), el("span", {}, note));
}

function drawOneUse(host, policy, most) {
  const chart = plot(host, {
    height: 150,
    left: 38,
    label: `GPUs in service, held and useful over time under ${policy.name}`,
  });
  const bins = Math.max(40, Math.floor(chart.inner.width / 3));
  const [capacity, held, useful] = ["capacity", "allocated", "useful"].map((kind) =>
    resample(policy.series, kind, bins),
  );
  const scaled = (values) => values.map((value) => value / most);
  valueAxis(chart, most, 3, whole);
  timeAxis(chart);
  chart.svg.append(
    shape("path", {
      class: "area",
      d: bandOf(chart, new Float64Array(bins), scaled(useful.mean)),
      fill: policy.colour,
    }),
    shape("path", {
      class: "band",
      d: bandOf(chart, scaled(held.low), scaled(held.high)),
      fill: policy.colour,
    }),
    shape("path", {
      class: "line thin",
      d: pathOf(chart, binPoints(scaled(held.mean))),
      stroke: policy.colour,
    }),
    shape("path", { class: "limit", d: pathOf(chart, binPoints(scaled(capacity.mean))) }),
  );
  return { chart, held, useful };
}

function binAt(bins, fraction) {
  return Math.min(bins.length - 1, Math.floor(fraction * bins.length));
}

const TWIN_PARTS = 10;

/** Averages of a series in ten equal parts of the time, one row per policy. */
function overTimeTable(caption, kind, write) {
  const head = Array.from(
    { length: TWIN_PARTS },
    (_, i) => `to ${moment(((i + 1) * horizon) / TWIN_PARTS)}`,
  );
  return simpleTable(
    caption,
    ["Policy", ...head],
    shownPolicies().map((policy) => [
      policy.name,
      ...Array.from(resample(policy.series, kind, TWIN_PARTS).mean, write),
    ]),
  );
}

function useTable() {
  return el(
    "div",
    {},
    el("h3", {}, "Held by runs, on average"),
    overTimeTable("GPUs held by runs, averaged over ten parts of the time", "allocated", decimal),
    el("h3", {}, "Doing work that counts, on average"),
    overTimeTable(
      "GPUs doing work that counts, averaged over ten parts of the time",
      "useful",
      decimal,
    ),
  );
}

// --- load over time ---------------------------------------------------------------------------

const LOADS = [
  { value: "queued", label: "Queued jobs", note: "Jobs that wait for GPUs" },
  { value: "running", label: "Running jobs", note: "Jobs that hold GPUs" },
  {
    value: "demand",
    label: "GPUs asked for",
    note: "GPUs that all unfinished jobs ask for together",
  },
];
let load = LOADS[0];

function drawLoad() {
  const shown = shownPolicies();
  const chart = plot(byId("load-chart"), {
    height: 260,
    label: `${load.label} over time, one line per policy`,
  });
  const bins = Math.max(60, Math.floor(chart.inner.width / 3));
  const lines = shown.map((policy) => resample(policy.series, load.value, bins));
  const most = Math.max(1, ...lines.map(({ mean }) => largest(mean))) * 1.06;
  valueAxis(chart, most, 5, whole);
  timeAxis(chart);
  lines.forEach(({ mean }, i) => {
    const { colour, dash, index } = shown[i];
    chart.svg.append(
      shape("path", {
        class: "line",
        d: pathOf(chart, binPoints(mean.map((value) => value / most))),
        stroke: colour,
        "stroke-dasharray": dash,
        "data-policy": index,
      }),
    );
  });
  byId("load-note").textContent = `${load.note}; averages, peaks in the read-out`;
  readOut([chart], (fraction) => ({
    title: `After ${moment(fraction * horizon)}`,
    rows: lines.map(({ mean, high }, i) => ({
      name: shown[i].name,
      value: loadText(mean[binAt(mean, fraction)], high[binAt(high, fraction)]),
      swatch: swatch(shown[i]),
    })),
    dots: lines.map(({ mean }, i) => ({
      x: fraction,
      y: mean[binAt(mean, fraction)] / most,
      colour: shown[i].colour,
    })),
  }));
}

function loadText(mean, peak) {
  return peak > mean * 1.005 ? `${decimal(mean)}, at most ${whole(peak)}` : decimal(mean);
}

function loadTable() {
  return overTimeTable(`${load.label}, averaged over ten parts of the time`, load.value, decimal);
}
