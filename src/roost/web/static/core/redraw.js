// Draws the page again when something changed: at most once per frame, whoever asks.

/** @type {() => void} */
let draw = () => {};
let asked = false;

/** Say what draws the page. @param {() => void} how */
export function drawWith(how) {
  draw = how;
}

/** Draw the page again soon. */
export function redraw() {
  if (asked) return;
  asked = true;
  // A tab in the background has no frames; it is drawn all the same, so that its title is right.
  if (document.hidden) setTimeout(drawNow, 250);
  else requestAnimationFrame(drawNow);
}

function drawNow() {
  asked = false;
  draw();
}
