// The heat map: what waits on the wheel, from seven days down to a minute. Rows and columns change places where the
// window is narrow, so that a cell is never narrower than a finger.

import { ask } from "./api.js";
import { button, byId, count, date, few, make, setText, timeOfDay, weekday } from "./words.js";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

// Of each zoom: how long a cell is, how many cells a group has, how many groups, which way they lie, how often to ask.
const ZOOMS = {
  week: { cell: HOUR, inGroup: 24, groups: 7, everyMs: 20_000 },
  day: { cell: 10 * MINUTE, inGroup: 6, groups: 24, everyMs: 10_000 },
  hour: { cell: MINUTE, inGroup: 10, groups: 6, everyMs: 4_000 },
  minute: { cell: SECOND, inGroup: 10, groups: 6, everyMs: 1_000 },
};
const NEXT = { week: "day", day: "hour", hour: "minute" };
const BACK = { day: "week", hour: "day", minute: "hour" };

const narrow = matchMedia("(max-width: 40rem)");
let zoom = "week";
let from = 0;
let follows = true; // the present: the window moves with the time
let counts = null;
let chosen = 0;
let onList = () => {};
let timer = 0;
let asked = 0;

const begin = (name, ms) => {
  const at = new Date(ms);
  if (name === "week" || name === "day") at.setHours(0, 0, 0, 0);
  else if (name === "hour") at.setMinutes(0, 0, 0);
  else at.setSeconds(0, 0);
  return at.getTime();
};

const shape = () => ({ ...ZOOMS[zoom], total: ZOOMS[zoom].inGroup * ZOOMS[zoom].groups });

/** Whether a group is a row; else a column. */
const groupsAreRows = () => (zoom === "week" ? !narrow.matches : zoom === "day" ? narrow.matches : true);

const two = (number) => String(number).padStart(2, "0");
const hourAndMinute = (ms) => timeOfDay(ms).slice(0, 5);

/** When a cell begins; it goes up to where the next one does. A day of the week has 23 or 25 hours where clocks change. */
const cellTime = (number) => {
  const { cell, inGroup } = shape();
  if (zoom !== "week") return from + number * cell;
  const at = new Date(from);
  at.setDate(at.getDate() + Math.floor(number / inGroup));
  at.setHours(number % inGroup);
  return at.getTime();
};

/** The cell of a time, or the nearest. */
const cellAt = (ms) => {
  const last = shape().total - 1;
  let number = 0;
  while (number < last && cellTime(number + 1) <= ms) number++;
  return number;
};

/** What each cell holds, of equal stretches from the first cell on. */
const inCells = (stretches) => {
  const { cell, total } = shape();
  const held = new Array(total).fill(0);
  for (const [stretch, messages] of stretches.entries()) if (messages) held[cellAt(from + stretch * cell)] += messages;
  return held;
};

const inWords = (number) => {
  const at = cellTime(number);
  const end = cellTime(number + 1);
  const span = zoom === "minute" ? timeOfDay(at) : `${hourAndMinute(at)} to ${hourAndMinute(end)}`;
  const what = counts === null ? "not known" : counts[number] === 1 ? "1 message" : `${count(counts[number])} messages`;
  return `${date(at)}, ${span}: ${what}${end <= Date.now() ? ", past" : ""}`;
};

const groupLabel = (group) => {
  const at = cellTime(group * shape().inGroup);
  if (zoom === "week") return narrow.matches ? weekday(at) : date(at);
  if (zoom === "day") return two(new Date(at).getHours());
  return `:${two(group * 10)}`;
};

const memberLabel = (member) => {
  if (zoom === "week") return two(member);
  if (zoom === "day") return `:${two(member * 10)}`;
  return `+${member}`;
};

/** 0 to 6, by the square root: small numbers can be told apart, too. */
const heat = (number, most) => (number ? 1 + Math.floor(5.999 * Math.sqrt(number / Math.max(most, 4))) : 0);

let cells = [];

/** Make the grid anew: another zoom, another window. */
const build = () => {
  const { inGroup, groups, total } = shape();
  const asRows = groupsAreRows();
  const rows = asRows ? groups : inGroup;
  const columns = asRows ? inGroup : groups;
  const grid = byId("wheel");
  grid.style.gridTemplateColumns = `auto repeat(${columns}, minmax(0, 1fr))`;
  cells = new Array(total);
  const head = make("div", make("span.label"));
  head.setAttribute("role", "row");
  head.firstChild.setAttribute("role", "columnheader");
  for (let column = 0; column < columns; column++) {
    const label = make("span.label.column", asRows ? memberLabel(column) : groupLabel(column));
    label.setAttribute("role", "columnheader");
    head.append(label);
  }
  const lines = [head];
  for (let row = 0; row < rows; row++) {
    const line = make("div", make("span.label.row", asRows ? groupLabel(row) : memberLabel(row)));
    line.setAttribute("role", "row");
    line.firstChild.setAttribute("role", "rowheader");
    for (let column = 0; column < columns; column++) {
      const number = asRows ? row * inGroup + column : column * inGroup + row;
      const cell = make("button.cell");
      cell.type = "button";
      cell.setAttribute("role", "gridcell");
      cell.tabIndex = -1;
      cell.addEventListener("click", () => open(number));
      cell.addEventListener("focus", () => choose(number));
      cell.addEventListener("pointerenter", () => setText(byId("wheel-cell"), inWords(number)));
      cells[number] = cell;
      line.append(cell);
    }
    lines.push(line);
  }
  grid.replaceChildren(...lines);
  chosen = cellAt(Date.now());
  paint();
  trail();
};

const paint = () => {
  const now = Date.now();
  const most = Math.max(1, ...(counts ?? [0]));
  for (const [number, cell] of cells.entries()) {
    const [at, end] = [cellTime(number), cellTime(number + 1)];
    const kind = ["cell"];
    if (counts) kind.push(`heat-${heat(counts[number], most)}`);
    if (end <= now && !counts?.[number]) kind.push("past");
    if (at <= now && now < end) kind.push("now");
    const name = kind.join(" ");
    if (cell.className !== name) cell.className = name;
    setText(cell, counts?.[number] ? few(counts[number]) : "");
    const words = inWords(number);
    if (cell.getAttribute("aria-label") !== words) cell.setAttribute("aria-label", words);
    cell.tabIndex = number === chosen ? 0 : -1;
  }
};

const choose = (number) => {
  chosen = number;
  for (const [other, cell] of cells.entries()) cell.tabIndex = other === number ? 0 : -1;
  setText(byId("wheel-cell"), inWords(number));
  offer(number);
};

/** The button that lists what a cell holds. */
const offer = (number) => {
  const list = byId("wheel-list");
  const held = counts?.[number] ?? 0;
  list.hidden = held === 0;
  if (held) setText(list, held === 1 ? "List this message" : `List these ${count(held)} messages`);
  list.onclick = () => onList(cellTime(number), cellTime(number + 1));
};

const open = (number) => {
  choose(number);
  if (NEXT[zoom]) go(NEXT[zoom], cellTime(number));
  else byId("wheel-list").hidden || byId("wheel-list").focus();
};

const go = (name, ms, { focus = true } = {}) => {
  const came = from;
  zoom = name;
  from = begin(name, ms);
  follows = from === begin(name, Date.now());
  counts = null;
  build();
  offer(-1);
  setText(byId("wheel-cell"), "");
  if (came > from) chosen = cellAt(came);
  if (focus) cells[chosen].focus({ preventScroll: true });
  load();
};

const trail = () => {
  const steps = [["week", "7 days"]];
  if (zoom !== "week") steps.push(["day", date(from)]);
  if (zoom === "hour" || zoom === "minute") steps.push(["hour", `${two(new Date(from).getHours())}:00`]);
  if (zoom === "minute") steps.push(["minute", hourAndMinute(from)]);
  const made = steps.map(([name, label]) => {
    const step = button(label, () => go(name, name === "week" ? Date.now() : from));
    if (name === zoom) step.setAttribute("aria-current", "true");
    return step;
  });
  const isNow = zoom === "minute" && follows;
  if (!isNow) made.push(button("This minute", () => go("minute", Date.now())));
  byId("zoom").replaceChildren(...made);
};

const load = async () => {
  clearTimeout(timer);
  if (document.hidden) return;
  if (follows && begin(zoom, Date.now()) !== from) {
    const hadFocus = byId("wheel").contains(document.activeElement);
    from = begin(zoom, Date.now());
    counts = null;
    build();
    if (hadFocus) cells[chosen].focus({ preventScroll: true });
  }
  const mine = ++asked;
  const { cell, total, everyMs } = shape();
  const query = new URLSearchParams({ from, to: cellTime(total), bucket: cell });
  try {
    const told = await ask("GET", `wheel?${query}`, undefined, 8_000);
    if (mine !== asked) return;
    counts = inCells(told.counts);
    paint();
    const shown = counts.reduce((sum, one) => sum + one, 0);
    const overdue = told.overdue ? `; ${count(told.overdue)} should have gone out by now` : "";
    if (!byId("wheel").contains(document.activeElement)) {
      setText(byId("wheel-cell"), `${count(shown)} of ${count(told.total)} on the wheel are in view${overdue}`);
    } else {
      setText(byId("wheel-cell"), inWords(chosen) + overdue);
      offer(chosen);
    }
  } catch (error) {
    if (mine !== asked) return;
    setText(byId("wheel-cell"), error.message);
  }
  timer = setTimeout(load, everyMs);
};

const onKey = (event) => {
  const { inGroup, total } = shape();
  const [across, down] = groupsAreRows() ? [1, inGroup] : [inGroup, 1];
  const steps = { ArrowRight: across, ArrowLeft: -across, ArrowDown: down, ArrowUp: -down };
  let to = null;
  if (event.key in steps) to = chosen + steps[event.key];
  else if (event.key === "Home") to = 0;
  else if (event.key === "End") to = total - 1;
  else if (event.key === "Escape" && BACK[zoom]) return event.preventDefault(), go(BACK[zoom], from);
  if (to === null) return;
  event.preventDefault();
  if (to >= 0 && to < total) cells[to].focus({ preventScroll: true });
};

/** `list(from, to)` is called for the messages of a cell. */
export const startWheel = (list) => {
  onList = list;
  byId("wheel").addEventListener("keydown", onKey);
  byId("wheel").addEventListener("pointerleave", () => setText(byId("wheel-cell"), ""));
  narrow.addEventListener("change", build);
  document.addEventListener("visibilitychange", load);
  go("week", Date.now(), { focus: false });
};

/** Ask again: there is a token now, or the sidecar is back. */
export const reloadWheel = load;
