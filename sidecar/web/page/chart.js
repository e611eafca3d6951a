// The last hour: how late deliveries were, on a logarithmic scale, over how many there were.

import { byId, lasting, rate, setText, timeOfDay } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const HOUR_MS = 3_600_000;
const HEIGHT = 176;
const BOTTOM = 18;
const LEFT = 48;
const DECADES = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000];

let points = [];
let everyMs = 5000;
let hour = null;

export const setHistory = (history) => {
  points = history.points;
  everyMs = history.every_ms;
  hour = history.hour;
  draw();
};

export const addPoint = (point) => {
  const last = points.at(-1);
  if (!point || (last && point.at_ms < last.at_ms)) return;
  if (last && point.at_ms === last.at_ms) points.pop();
  points.push(point);
  const begin = point.at_ms - HOUR_MS;
  while (points.length && points[0].at_ms <= begin) points.shift();
  draw();
};

const shape = (tag, attributes, text) => {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
};

const draw = () => {
  const box = byId("hour");
  const width = Math.max(280, box.clientWidth);
  const end = points.at(-1)?.at_ms ?? Date.now();
  // A sidecar that has just started has no hour to show.
  const age = end - (points[0]?.at_ms ?? end);
  const spanMs = [300_000, 600_000, 1_800_000].find((span) => age <= span) ?? HOUR_MS;
  const minutesShown = spanMs / 60_000;
  const x = (ms) => LEFT + (1 - (end - ms) / spanMs) * (width - LEFT - 2);
  const lates = points.map((point) => point.p99_ms).filter((late) => late !== null);
  const highest = Math.max(100, ...lates);
  const top = DECADES.find((decade) => decade >= highest) ?? DECADES.at(-1);
  const y = (ms) => 6 + (1 - Math.log10(Math.max(1, ms)) / Math.log10(top)) * (HEIGHT - BOTTOM - 6);

  const parts = [];
  const outs = points.map((point) => (point.delivered * 1000) / everyMs);
  const most = Math.max(1, ...outs);
  const wide = Math.max(1, (width - LEFT) / (spanMs / everyMs));
  for (const [number, point] of points.entries()) {
    if (!outs[number]) continue;
    const high = Math.max(1, (outs[number] / most) * (HEIGHT - BOTTOM) * 0.5);
    parts.push(shape("rect", { class: "out", x: x(point.at_ms - everyMs), y: HEIGHT - BOTTOM - high, width: wide, height: high }));
  }
  for (const decade of DECADES.filter((one) => one <= top)) {
    parts.push(shape("line", { class: "rule", x1: LEFT, x2: width, y1: y(decade), y2: y(decade) }));
    parts.push(shape("text", { x: LEFT - 8, y: y(decade) + 4, "text-anchor": "end" }, lasting(decade)));
  }
  const step = minutesShown / (width < 500 ? 2 : 5);
  for (let minutes = 0; minutes <= minutesShown; minutes += step) {
    const anchor = minutes === 0 ? "end" : minutes === minutesShown ? "start" : "middle";
    const label = minutes === 0 ? "now" : `−${minutes} min`;
    parts.push(shape("text", { x: x(end - minutes * 60_000), y: HEIGHT - 3, "text-anchor": anchor }, label));
  }
  for (const name of ["p50", "p99"]) parts.push(shape("path", { class: name, d: path(name, x, y) }));

  const svg = shape("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-labelledby": "hour-words" });
  svg.append(...parts);
  svg.addEventListener("pointermove", (event) => {
    const at = end - (1 - (event.offsetX - LEFT) / (width - LEFT - 2)) * spanMs;
    tell(points.findLast((point) => point.at_ms - everyMs <= at && at < point.at_ms));
  });
  svg.addEventListener("pointerleave", () => tell());
  box.replaceChildren(svg);
  tell();
};

/** A line, interrupted where nothing was delivered for half a minute. */
const path = (name, x, y) => {
  let d = "";
  let before = -Infinity;
  for (const point of points) {
    if (point[name + "_ms"] === null) continue;
    const place = `${x(point.at_ms - everyMs / 2).toFixed(1)} ${y(point[name + "_ms"]).toFixed(1)}`;
    // A point alone is a short stroke.
    d += point.at_ms - before > 30_000 ? `M${place}h2` : `L${place}`;
    before = point.at_ms;
  }
  return d;
};

const tell = (point) => {
  const words = byId("hour-words");
  if (point) {
    const late = point.p99_ms === null ? "nothing delivered" : `lateness p50 ${lasting(point.p50_ms)}, p99 ${lasting(point.p99_ms)}, highest ${lasting(point.max_ms)}`;
    setText(words, `${timeOfDay(point.at_ms)}: ${rate((point.delivered * 1000) / everyMs)} out, ${late}`);
    return;
  }
  const told = points.filter((one) => one.p99_ms !== null);
  if (!told.length) {
    setText(words, "Nothing has been delivered in the last hour.");
    return;
  }
  const worst = told.reduce((one, other) => (other.max_ms > one.max_ms ? other : one));
  const usual = hour?.p99_ms != null ? `99% of deliveries were at most ${lasting(hour.p99_ms)} late; ` : "";
  setText(words, `${usual}the latest by ${lasting(worst.max_ms)}, at ${timeOfDay(worst.at_ms)}.`);
};

let drawn = 0;
new ResizeObserver(() => {
  cancelAnimationFrame(drawn);
  drawn = requestAnimationFrame(draw);
}).observe(byId("hour"));
