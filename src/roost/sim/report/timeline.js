// The timeline: who held which GPU when. A row per GPU, a bar per hold, on a canvas.
//
// Bars are kept by row and by start, so that a frame looks only at those in view; bars thinner
// than a pixel are added up per pixel. Times here are in ticks.

const GUTTER = 78;
const AXIS = 24;
const NODE_GAP = 7;
const STAGE_HEIGHT = 620;
const OVERVIEW_HEIGHT = 44;
const QUEUE_HUES = 8;
const SHADES = 3;
const MIN_SPAN = 5; // ticks across the stage at the closest zoom

const stage = byId("timeline-stage");
const canvas = stage.querySelector(".timeline-canvas");
const overview = stage.querySelector(".timeline-overview");

const view = { from: 0, to: contents.horizon, top: 0, width: 0, height: 0, row: 10, followed: null, pointed: null };
const nodes = layNodes();
let paint = {};
const laidOut = new Map();

/** Nodes with the rows of their GPUs. */
function layNodes() {
  let first = 0;
  return contents.node_rows.map(([name, gpus], index) => {
    const node = { name, gpus, first, index };
    first += gpus;
    return node;
  });
}

const rowCount = nodes.reduce((sum, node) => sum + node.gpus, 0);
const nodeOfRow = nodes.flatMap((node) => Array(node.gpus).fill(node));

function nodeTop(node) {
  return node.first * view.row + node.index * NODE_GAP;
}

function rowTop(row) {
  return row * view.row + nodeOfRow[row].index * NODE_GAP;
}

function contentHeight() {
  return rowCount * view.row + Math.max(0, nodes.length - 1) * NODE_GAP;
}

/** Unpack a policy's bars once: where each row begins, and the latest end so far within a row. */
function barsOf(policy) {
  if (!laidOut.has(policy.index)) laidOut.set(policy.index, unpackBars(policy.bars));
  return laidOut.get(policy.index);
}

function unpackBars({ rows, start, length, job, span, shares }) {
  const count = job.length;
  const bars = {
    count,
    rowStart: Uint32Array.from([0, ...sums(rows)]),
    start: new Float64Array(count),
    end: new Float64Array(count),
    latest: new Float64Array(count),
    job: Int32Array.from(job),
    span: Uint16Array.from(span),
    offset: new Uint16Array(count),
    share: new Uint16Array(count).fill(1000),
    tallest: span.reduce((most, rowsHigh) => Math.max(most, rowsHigh), 1),
  };
  for (let row = 0; row < rows.length; row += 1) {
    let at = 0;
    let latest = -Infinity;
    for (let i = bars.rowStart[row]; i < bars.rowStart[row + 1]; i += 1) {
      at += start[i];
      bars.start[i] = at;
      bars.end[i] = at + length[i];
      bars.latest[i] = latest = Math.max(latest, bars.end[i]);
    }
  }
  for (const [i, offset, share] of shares) [bars.offset[i], bars.share[i]] = [offset, share];
  return bars;
}

/** The first bar of a row that is not over by a time. */
function firstAfter(bars, row, time) {
  let low = bars.rowStart[row];
  let high = bars.rowStart[row + 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (bars.latest[middle] <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}

// --- drawing -----------------------------------------------------------------------------------

const drawTimeline = oncePerFrame(() => {
  sizeStage();
  const context = fitCanvas(canvas, view.width, view.height);
  const bars = barsOf(inDetail);
  context.save();
  context.beginPath();
  context.rect(GUTTER, AXIS, view.width - GUTTER, view.height - AXIS);
  context.clip();
  drawNodes(context);
  drawBars(context, bars);
  drawFollowed(context, bars);
  context.restore();
  drawTimeAxis(context);
  drawNodeNames(context);
  drawScrollMark(context);
  drawOverview();
});

function sizeStage() {
  view.width = Math.max(260, stage.clientWidth);
  view.height = AXIS + Math.min(STAGE_HEIGHT, Math.ceil(contentHeight()) + 2);
  view.top = Math.max(0, Math.min(view.top, contentHeight() - (view.height - AXIS) + 2));
}

/** Size a canvas for the screen's pixels, clear it, and scale it so that we can count CSS pixels. */
function fitCanvas(target, width, height) {
  const ratio = devicePixelRatio || 1;
  if (target.width !== Math.round(width * ratio) || target.height !== Math.round(height * ratio)) {
    target.width = Math.round(width * ratio);
    target.height = Math.round(height * ratio);
    setStyle(target, { width: `${width}px`, height: `${height}px` });
  }
  const context = target.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

function pixelsPerTick() {
  return (view.width - GUTTER) / (view.to - view.from);
}

function xOf(time) {
  return GUTTER + (time - view.from) * pixelsPerTick();
}

function timeAt(x) {
  return view.from + (x - GUTTER) / pixelsPerTick();
}

function drawNodes(context) {
  context.fillStyle = paint.row;
  for (const node of nodes) {
    const y = AXIS + nodeTop(node) - view.top;
    if (y < view.height && y + node.gpus * view.row > AXIS) context.fillRect(GUTTER, y, view.width - GUTTER, node.gpus * view.row);
  }
}

/** Rows to look at: those in view, and above them as many as the tallest bar may reach down. */
function rowsInView(bars) {
  let first = 0;
  while (first < rowCount - 1 && rowTop(first) + view.row < view.top) first += 1;
  let last = first;
  while (last < rowCount - 1 && rowTop(last + 1) < view.top + view.height - AXIS) last += 1;
  return [Math.max(0, first - bars.tallest + 1), last];
}

function drawBars(context, bars) {
  if (rowCount === 0) return;
  const [first, last] = rowsInView(bars);
  for (let row = first; row <= last; row += 1) drawRow(context, bars, row);
  context.globalAlpha = 1;
}

function drawRow(context, bars, row) {
  const scale = pixelsPerTick();
  const stop = bars.rowStart[row + 1];
  const speck = { pixel: -1, filled: 0, bar: 0 };
  for (let i = firstAfter(bars, row, view.from); i < stop && bars.start[i] < view.to; i += 1) {
    if (bars.end[i] <= view.from) continue;
    const x = GUTTER + (bars.start[i] - view.from) * scale;
    const width = (bars.end[i] - bars.start[i]) * scale;
    if (width >= 1.2) drawBar(context, bars, i, x, width);
    else addToSpeck(context, bars, speck, i, Math.floor(x), width);
  }
  flushSpeck(context, bars, speck);
}

/** Bars thinner than a pixel become one speck per pixel, as strong as they fill it. */
function addToSpeck(context, bars, speck, i, pixel, width) {
  if (pixel !== speck.pixel || bars.span[i] !== bars.span[speck.bar]) {
    flushSpeck(context, bars, speck);
    speck.pixel = pixel;
    speck.filled = 0;
  }
  speck.filled += width;
  speck.bar = i;
}

function flushSpeck(context, bars, speck) {
  if (speck.pixel < 0) return;
  const { y, height } = barBox(bars, speck.bar);
  context.globalAlpha = strength(bars.job[speck.bar]) * Math.min(1, Math.max(0.35, speck.filled));
  context.fillStyle = colourOf(bars.job[speck.bar]);
  context.fillRect(speck.pixel, y, 1, height);
  speck.pixel = -1;
}

function drawBar(context, bars, i, x, width) {
  const { y, height } = barBox(bars, i);
  const left = Math.max(x, GUTTER - 4);
  const right = Math.min(x + width, view.width + 4);
  const gap = width > 5 ? 1 : 0;
  context.globalAlpha = strength(bars.job[i]);
  context.fillStyle = colourOf(bars.job[i]);
  if (width > 9 && height > 7) roundBar(context, left, y, right - left - gap, height);
  else context.fillRect(left, y, right - left - gap, height);
  if (height >= 11 && right - left > 46) writeOnBar(context, idOf(bars.job[i]), left, right, y + Math.min(height, 18) / 2);
}

function roundBar(context, x, y, width, height) {
  context.beginPath();
  context.roundRect(x, y, width, height, 2.5);
  context.fill();
}

function barBox(bars, i) {
  const row = rowOfBar(bars, i);
  const gap = view.row >= 4 ? 1 : 0;
  const top = AXIS + rowTop(row) - view.top;
  if (bars.share[i] < 1000) {
    const inside = view.row - gap;
    return { y: top + (bars.offset[i] / 1000) * inside, height: Math.max(0.8, (bars.share[i] / 1000) * inside - (inside > 8 ? 0.6 : 0)) };
  }
  return { y: top, height: Math.max(0.8, bars.span[i] * view.row - gap) };
}

function rowOfBar(bars, i) {
  let low = 0;
  let high = rowCount;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (bars.rowStart[middle + 1] <= i) low = middle + 1;
    else high = middle;
  }
  return low;
}

function writeOnBar(context, text, left, right, middle) {
  const from = Math.max(left, GUTTER) + 5;
  const room = right - from - 5;
  const fits = Math.floor(room / 6.2);
  if (fits < 5) return;
  context.fillStyle = paint.onBar;
  context.font = paint.small;
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.fillText(text.length > fits ? `${text.slice(0, fits - 1)}…` : text, from, middle, room);
}

/** Mark when the followed job was submitted, and outline its bars. */
function drawFollowed(context, bars) {
  if (view.followed === null) return;
  const submitted = intake().submitted[view.followed];
  context.strokeStyle = paint.text;
  context.lineWidth = 1;
  context.setLineDash([3, 3]);
  context.beginPath();
  context.moveTo(xOf(submitted), AXIS);
  context.lineTo(xOf(submitted), view.height);
  context.stroke();
  context.setLineDash([]);
  for (let i = 0; i < bars.count; i += 1) {
    if (bars.job[i] !== view.followed) continue;
    const { y, height } = barBox(bars, i);
    const x = xOf(bars.start[i]);
    context.strokeRect(x - 0.5, y - 0.5, Math.max(2, xOf(bars.end[i]) - x), height + 1);
  }
}

function drawTimeAxis(context) {
  const { ticks, write } = timeTicks(view.from * tick, view.to * tick, (view.width - GUTTER) / 110);
  context.fillStyle = paint.surface;
  context.fillRect(0, 0, view.width, AXIS);
  context.font = paint.small;
  context.textBaseline = "middle";
  for (const seconds of ticks) {
    const x = Math.round(xOf(seconds / tick)) + 0.5;
    if (x < GUTTER - 1) continue;
    context.fillStyle = paint.muted;
    context.textAlign = x > view.width - 30 ? "right" : x < GUTTER + 20 ? "left" : "center";
    context.fillText(seconds === 0 ? "0" : write(seconds), x, 9);
    context.fillStyle = paint.line;
    context.fillRect(x - 0.5, AXIS - 6, 1, view.height);
  }
}

function drawNodeNames(context) {
  context.fillStyle = paint.surface;
  context.fillRect(0, 0, GUTTER, view.height);
  context.font = paint.small;
  context.textBaseline = "middle";
  context.textAlign = "right";
  let lowest = -Infinity;
  for (const node of nodes) {
    const y = AXIS + nodeTop(node) - view.top + (node.gpus * view.row) / 2;
    if (y < AXIS + 4 || y > view.height - 4 || y - lowest < 12) continue;
    context.fillStyle = paint.muted;
    context.fillText(node.name, GUTTER - 8, y, GUTTER - 12);
    lowest = y;
  }
}

function drawScrollMark(context) {
  const room = view.height - AXIS;
  const all = contentHeight();
  if (all <= room + 2) return;
  context.fillStyle = paint.muted;
  context.globalAlpha = 0.5;
  context.fillRect(view.width - 4, AXIS + (view.top / all) * room, 3, Math.max(18, (room / all) * room));
  context.globalAlpha = 1;
}

/** The strip below: GPUs held over the whole run, and the part of it in view. */
function drawOverview() {
  const context = fitCanvas(overview, view.width, OVERVIEW_HEIGHT);
  const width = view.width - GUTTER;
  const bins = Math.max(20, Math.floor(width / 2));
  const { mean } = resample(inDetail.series, "allocated", bins);
  const most = Math.max(1e-9, largest(mean), contents.gpus);
  const scale = width / contents.horizon;
  context.fillStyle = paint.row;
  context.fillRect(GUTTER, 0, width, OVERVIEW_HEIGHT);
  context.fillStyle = paint.faint;
  mean.forEach((value, bin) => {
    const height = (value / most) * (OVERVIEW_HEIGHT - 4);
    context.fillRect(GUTTER + (bin * width) / bins, OVERVIEW_HEIGHT - height, width / bins + 0.5, height);
  });
  const left = GUTTER + view.from * scale;
  const shown = Math.max(3, (view.to - view.from) * scale);
  context.fillStyle = paint.window;
  context.fillRect(left, 0, shown, OVERVIEW_HEIGHT);
  context.strokeStyle = paint.accent;
  context.lineWidth = 1.5;
  context.strokeRect(left + 0.75, 0.75, shown - 1.5, OVERVIEW_HEIGHT - 1.5);
  context.fillStyle = paint.muted;
  context.font = paint.small;
  context.textAlign = "right";
  context.textBaseline = "middle";
  context.fillText("GPUs held", GUTTER - 8, OVERVIEW_HEIGHT / 2, GUTTER - 12);
}

// --- colours -------------------------------------------------------------------------------------

/** Read the theme's colours: a canvas does not follow style sheets by itself. */
function mixPaint() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  paint = {
    text: of("--text"),
    muted: of("--muted"),
    surface: of("--surface"),
    row: of("--row"),
    line: of("--grid"),
    faint: of("--faint"),
    accent: of("--accent"),
    window: of("--window"),
    onBar: of("--on-bar"),
    small: `11px ${getComputedStyle(document.body).fontFamily}`,
    queues: Array.from({ length: QUEUE_HUES }, (_, hue) => Array.from({ length: SHADES }, (_, shade) => of(`--queue-${hue}-${shade}`))),
  };
}

function intake() {
  return contents.intakes[inDetail.intake];
}

function idOf(job) {
  return intake().id[job];
}

/** A colour per queue, in a few shades so that neighbouring jobs can be told apart. */
function colourOf(job) {
  const queue = Math.min(intake().queue[job], QUEUE_HUES - 1);
  return paint.queues[queue][job % SHADES];
}

function strength(job) {
  return view.followed === null || view.followed === job ? 1 : 0.16;
}

// --- moving about -----------------------------------------------------------------------------------

/** Show a stretch of time, kept within the run and above the closest zoom. */
function lookAt(from, to) {
  const span = Math.min(contents.horizon, Math.max(MIN_SPAN, to - from));
  view.from = Math.max(0, Math.min(from + (to - from - span) / 2, contents.horizon - span));
  view.to = view.from + span;
  drawTimeline();
}

/** Zoom by a factor around a moment that stays where it is. */
function zoom(factor, around = (view.from + view.to) / 2) {
  const span = Math.min(contents.horizon, Math.max(MIN_SPAN, (view.to - view.from) * factor));
  const part = (around - view.from) / (view.to - view.from);
  lookAt(around - part * span, around + (1 - part) * span);
}

function move(ticks, pixelsDown = 0) {
  view.top += pixelsDown;
  lookAt(view.from + ticks, view.to + ticks);
}

function seeEverything() {
  view.top = 0;
  lookAt(0, contents.horizon);
}

function tallerRows(factor) {
  const before = view.row;
  view.row = Math.min(28, Math.max(1, view.row * factor));
  view.top *= view.row / before;
  drawTimeline();
}

const KEYS = {
  ArrowLeft: () => move(-(view.to - view.from) * 0.15),
  ArrowRight: () => move((view.to - view.from) * 0.15),
  ArrowUp: () => move(0, -60),
  ArrowDown: () => move(0, 60),
  "+": () => zoom(1 / 1.6),
  "=": () => zoom(1 / 1.6),
  "-": () => zoom(1.6),
  0: seeEverything,
  Home: seeEverything,
  Escape: () => follow(null),
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in KEYS)) return;
  event.preventDefault();
  KEYS[event.key]();
}

/** The wheel zooms with Ctrl (a pinch on a touchpad) or once the timeline has the focus. */
function onWheel(event) {
  if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
  event.preventDefault();
  if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    move(((event.deltaX || event.deltaY) * (view.to - view.from)) / view.width);
  } else {
    zoom(Math.exp(Math.max(-120, Math.min(120, event.deltaY)) * (event.ctrlKey ? 0.008 : 0.003)), timeAt(event.offsetX));
  }
}

const fingers = new Map();
let dragged = 0;

function onDown(event) {
  canvas.setPointerCapture(event.pointerId);
  fingers.set(event.pointerId, [event.offsetX, event.offsetY]);
  dragged = 0;
}

function onMove(event) {
  const before = fingers.get(event.pointerId);
  if (before === undefined) return pointAt(event);
  const now = [event.offsetX, event.offsetY];
  dragged += Math.abs(now[0] - before[0]) + Math.abs(now[1] - before[1]);
  if (fingers.size === 2) pinch(event.pointerId, before, now);
  else if (dragged > 3) move((before[0] - now[0]) / pixelsPerTick(), before[1] - now[1]);
  fingers.set(event.pointerId, now);
  hideTip();
}

function pinch(finger, before, now) {
  const [other] = [...fingers].filter(([id]) => id !== finger).map(([, at]) => at);
  const apart = (at) => Math.max(8, Math.abs(at[0] - other[0]));
  zoom(apart(before) / apart(now), timeAt((now[0] + other[0]) / 2));
}

function onUp(event) {
  const known = fingers.delete(event.pointerId);
  if (known && dragged <= 3 && event.type === "pointerup") follow(barAt(event.offsetX, event.offsetY)?.job ?? null);
}

// --- one job ------------------------------------------------------------------------------------------

/** The bar under a point of the canvas, or null. */
function barAt(x, y) {
  if (x < GUTTER || y < AXIS || rowCount === 0) return null;
  const bars = barsOf(inDetail);
  const row = rowAt(y);
  const time = timeAt(x);
  const slack = 1 / pixelsPerTick();
  for (let above = row; above >= Math.max(0, row - bars.tallest + 1); above -= 1) {
    for (let i = firstAfter(bars, above, time - slack); i < bars.rowStart[above + 1] && bars.start[i] <= time + slack; i += 1) {
      const { y: top, height } = barBox(bars, i);
      if (bars.end[i] >= time - slack && y >= top && y <= top + height) return { bars, index: i, job: bars.job[i], row: above };
    }
  }
  return null;
}

function rowAt(y) {
  let low = 0;
  let high = rowCount - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (rowTop(middle) <= y - AXIS + view.top) low = middle;
    else high = middle - 1;
  }
  return low;
}

function pointAt(event) {
  const found = barAt(event.offsetX, event.offsetY);
  canvas.classList.toggle("on-bar", found !== null);
  if (found === null) return hideTip();
  const { bars, index, job, row } = found;
  const node = nodeOfRow[row];
  const gpu = row - node.first;
  const span = bars.span[index];
  showTip(event.clientX, event.clientY, idOf(job), [
    { name: "Queue", value: queues[intake().queue[job]] },
    { name: "GPUs of the job", value: decimal(intake().gpus[job]) },
    { name: "Here", value: `${node.name}, GPU ${span > 1 ? `${gpu}–${gpu + span - 1}` : gpu}${bars.share[index] < 1000 ? `, share ${bars.share[index] / 1000}` : ""}` },
    { name: "Held for", value: duration((bars.end[index] - bars.start[index]) * tick) },
    { name: "From", value: moment(bars.start[index] * tick) },
    { name: "Run time alone", value: duration(intake().work[job] * tick) },
  ]);
}

/** Follow one job: light its bars, dim the others, and tell its story below. */
function follow(job) {
  view.followed = job;
  byId("timeline-job").replaceChildren(...(job === null ? [] : jobCard(job)));
  drawTimeline();
}

/** Follow a job and bring all its bars into view. */
function goTo(job) {
  const bars = barsOf(inDetail);
  const own = Array.from({ length: bars.count }, (_, i) => i).filter((i) => bars.job[i] === job);
  const from = Math.min(intake().submitted[job], ...own.map((i) => bars.start[i]));
  const to = Math.max(from + 1, ...own.map((i) => bars.end[i]));
  if (own.length) view.top = rowTop(rowOfBar(bars, own[0])) - 80;
  lookAt(from - (to - from) * 0.2, to + (to - from) * 0.2);
  follow(job);
  byId("timeline").scrollIntoView({ block: "start", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
}

function jobCard(job) {
  const bars = barsOf(inDetail);
  const own = Array.from({ length: bars.count }, (_, i) => i).filter((i) => bars.job[i] === job);
  const place = tableRowOf(job);
  const facts = [
    ["Queue", queues[intake().queue[job]]],
    ["GPUs", decimal(intake().gpus[job])],
    ["Submitted", moment(intake().submitted[job] * tick)],
    ["Run time alone", duration(intake().work[job] * tick)],
    ["Bars", whole(own.length)],
    ...(place < 0 ? [] : jobFacts(place)),
  ];
  return [
    el("h3", {}, idOf(job)),
    el("dl", {}, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    el("button", { type: "button", class: "plain", onclick: () => follow(null) }, "Stop following"),
  ];
}

// --- start ----------------------------------------------------------------------------------------------

function startTimeline() {
  if (contents.policies.every(({ bars }) => bars.total === 0)) {
    byId("timeline-stage").replaceChildren(el("p", { class: "empty" }, "The timeline was not recorded."));
    byId("timeline-help").hidden = true;
    return;
  }
  view.row = Math.max(2, Math.min(13, Math.floor((STAGE_HEIGHT - nodes.length * NODE_GAP) / rowCount)));
  canvas.addEventListener("pointerdown", onDown);
  canvas.addEventListener("pointermove", onMove);
  canvas.addEventListener("pointerup", onUp);
  canvas.addEventListener("pointercancel", onUp);
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("dblclick", seeEverything);
  canvas.addEventListener("wheel", onWheel, { passive: false });
  canvas.addEventListener("keydown", onKey);
  overview.addEventListener("pointerdown", slide);
  overview.addEventListener("pointermove", (event) => event.buttons && slide(event));
  addZoomButtons();
  watch(() => {
    mixPaint();
    drawTimeline();
  });
  describeTimeline();
  watchDetail(() => {
    describeTimeline();
    follow(null);
  });
}

/** Centre the view on a place of the overview. */
function slide(event) {
  const middle = ((event.offsetX - GUTTER) / (view.width - GUTTER)) * contents.horizon;
  const span = view.to - view.from;
  lookAt(middle - span / 2, middle + span / 2);
}

function addZoomButtons() {
  const buttons = [
    ["−", "Zoom out", () => zoom(1.6)],
    ["+", "Zoom in", () => zoom(1 / 1.6)],
    ["All", "See everything", seeEverything],
    ["↕−", "Lower rows", () => tallerRows(1 / 1.4)],
    ["↕+", "Higher rows", () => tallerRows(1.4)],
  ];
  byId("timeline-zoom").replaceChildren(
    ...buttons.map(([text, label, act]) => el("button", { type: "button", "aria-label": label, title: label, onclick: act }, text)),
  );
  byId("timeline-keys").replaceChildren(
    ...queues.slice(0, QUEUE_HUES).map((queue, i) => el("li", {}, el("i", { class: `queue-${i}` }), i === QUEUE_HUES - 1 && queues.length > QUEUE_HUES ? "other queues" : queue)),
  );
}

function describeTimeline() {
  const { bars, name } = inDetail;
  canvas.setAttribute("aria-label", `Timeline of ${name}: GPUs as rows, time from left to right. The table of jobs below has the same jobs.`);
  const unused = contents.nodes - nodes.length;
  const parts = [
    `Rows: GPUs by node. Bars: runs, coloured by queue`,
    bars.total > bars.job.length ? `the ${whole(bars.job.length)} largest of ${whole(bars.total)} bars, ${percent(bars.shown)} of the GPU time held` : null,
    unused > 0 ? `${plural(unused, "node")} never used` : null,
  ];
  byId("timeline-note").textContent = parts.filter(Boolean).join("; ");
}
