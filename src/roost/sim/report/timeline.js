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

const view = {
  from: 0,
  to: contents.horizon,
  top: 0,
  width: 0,
  height: 0,
  row: 10,
  followed: null,
};
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
  drawGround(context);
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

/** Draw the ground that bars lie on: a band per node, and lines at round times. */
function drawGround(context) {
  context.fillStyle = paint.row;
  for (const node of nodes) {
    const y = AXIS + nodeTop(node) - view.top;
    if (y < view.height && y + node.gpus * view.row > AXIS)
      context.fillRect(GUTTER, y, view.width - GUTTER, node.gpus * view.row);
  }
  context.fillStyle = paint.line;
  for (const seconds of roundTimes().ticks)
    context.fillRect(Math.round(xOf(seconds / tick)), AXIS, 1, view.height);
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
  const speck = { row, pixel: -1, filled: 0, bar: 0 };
  for (let i = firstAfter(bars, row, view.from); i < stop && bars.start[i] < view.to; i += 1) {
    if (bars.end[i] <= view.from) continue;
    const x = GUTTER + (bars.start[i] - view.from) * scale;
    const width = (bars.end[i] - bars.start[i]) * scale;
    if (width >= 1.2) drawBar(context, bars, i, { row, x, width });
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
  const { y, height } = barBox(bars, speck.bar, speck.row);
  context.globalAlpha = strength(bars.job[speck.bar]) * Math.min(1, Math.max(0.35, speck.filled));
  context.fillStyle = colourOf(bars.job[speck.bar]);
  context.fillRect(speck.pixel, y, 1, height);
  speck.pixel = -1;
}

function drawBar(context, bars, i, { row, x, width }) {
  const { y, height } = barBox(bars, i, row);
  const left = Math.max(x, GUTTER - 4);
  const right = Math.min(x + width, view.width + 4);
  const gap = width > 5 ? 1 : 0;
  context.globalAlpha = strength(bars.job[i]);
  context.fillStyle = colourOf(bars.job[i]);
  if (width > 9 && height > 7) roundBar(context, left, y, right - left - gap, height);
  else context.fillRect(left, y, right - left - gap, height);
  if (height >= 11 && right - left > 46 && context.globalAlpha === 1) {
    writeOnBar(context, idOf(bars.job[i]), { left, right, middle: y + Math.min(height, 18) / 2 });
  }
}

function roundBar(context, x, y, width, height) {
  context.beginPath();
  context.roundRect(x, y, width, height, 2.5);
  context.fill();
}

function barBox(bars, i, row) {
  const gap = view.row >= 4 ? 1 : 0;
  const top = AXIS + rowTop(row) - view.top;
  if (bars.share[i] < 1000) {
    const inside = view.row - gap;
    return {
      y: top + (bars.offset[i] / 1000) * inside,
      height: Math.max(0.8, (bars.share[i] / 1000) * inside - (inside > 8 ? 0.6 : 0)),
    };
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

function writeOnBar(context, text, { left, right, middle }) {
  const from = Math.max(left, GUTTER) + 5;
  const room = right - from - 5;
  const fits = Math.floor(room / 6.2);
  if (fits < Math.min(text.length, 12)) return;
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
    const { y, height } = barBox(bars, i, rowOfBar(bars, i));
    const x = xOf(bars.start[i]);
    context.strokeRect(x - 0.5, y - 0.5, Math.max(2, xOf(bars.end[i]) - x), height + 1);
  }
}

function roundTimes() {
  return timeTicks(view.from * tick, view.to * tick, Math.max(3, (view.width - GUTTER) / 90));
}

function drawTimeAxis(context) {
  const { ticks, write } = roundTimes();
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
    context.fillRect(x - 0.5, AXIS - 6, 1, 6);
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
  context.fillRect(
    view.width - 4,
    AXIS + (view.top / all) * room,
    3,
    Math.max(18, (room / all) * room),
  );
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
    context.fillRect(
      GUTTER + (bin * width) / bins,
      OVERVIEW_HEIGHT - height,
      width / bins + 0.5,
      height,
    );
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
    queues: Array.from({ length: QUEUE_HUES }, (_, hue) =>
      Array.from({ length: SHADES }, (_, shade) => of(`--queue-${hue}-${shade}`)),
    ),
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
