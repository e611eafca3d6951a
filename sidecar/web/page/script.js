// The page: what the status says, and the parts that ask for themselves.

import { ask, follow, forgetToken, useToken } from "./api.js";
import { addPoint, setHistory } from "./chart.js";
import { listSpan, startLists } from "./lists.js";
import { byId, bytes, confirmed, count, fromNow, lasting, make, rate, setText, timeOfDay, zone } from "./words.js";
import { reloadWheel, startWheel } from "./wheel.js";

const HISTORY_EVERY_MS = 60_000;

// Told by a word and a shape each, not by colour alone.
const STATES = {
  healthy: ["✓", "Healthy"],
  behind: ["▲", "Behind"],
  held: ["‖", "Held by a switch"],
  recovering: ["↻", "Recovering"],
  starting: ["…", "Starting"],
  stopping: ["■", "Stopping"],
  broker_away: ["✕", "Broker away"],
  disk_full: ["!", "Disk full"],
  stuck: ["!", "Needs an operator"],
  gone: ["?", "No answer from the sidecar"],
};

let status = null;
let heardAt = 0;

const show = (told) => {
  status = told;
  const isFirst = heardAt === 0;
  heardAt = Date.now();
  byId("token").hidden = true;
  byId("connection").dataset.live = "yes";
  setText(byId("connection"), `live, ${timeOfDay(told.at_ms)}`);
  setText(byId("version"), told.version);
  setText(byId("group"), told.group_id ?? "");
  showHealth(told);
  showQueues(told);
  showTopics(told);
  showRejected(told);
  showSwitches(told);
  addPoint(told.point);
  if (isFirst) {
    loadHistory();
    reloadWheel();
  }
};

const setState = (state) => {
  const [mark, name] = STATES[state] ?? ["?", state];
  byId("health").dataset.state = state;
  setText(document.querySelector(".mark"), mark);
  setText(byId("state"), name);
  const title = state === "healthy" ? "Timewheel" : `${name} – Timewheel`;
  if (document.title !== title) document.title = title;
};

const showHealth = (told) => {
  setState(told.state);
  setText(byId("since"), told.state_for_ms >= 1000 ? `for ${lasting(told.state_for_ms)}` : "");
  const words = told.words.charAt(0).toUpperCase() + told.words.slice(1);
  setText(byId("words"), `${words}.`);
  byId("action").hidden = !told.action;
  setText(byId("action"), told.action);
  const progress = byId("progress");
  progress.hidden = told.progress === null;
  if (told.progress !== null) progress.value = told.progress;
  const notes = [...told.reasons.map((reason) => `Not ready: ${reason}`), ...told.warnings];
  const list = byId("notes");
  if (list.textContent !== notes.join("")) list.replaceChildren(...notes.map((note) => make("li", note)));
  const late = told.lateness.minute;
  const behindMs = told.behind_seconds * 1000;
  setText(byId("behind"), behindMs > 1000 ? lasting(behindMs) : "0 s"); // below that it is what is just being sent
  byId("behind").classList.toggle("alarm", behindMs > 1000);
  setText(byId("late-p50"), lasting(late.p50_ms));
  setText(byId("late-p99"), lasting(late.p99_ms));
  setText(byId("rate-out"), rate(told.rates.delivered));
  setText(byId("rate-in"), rate(told.rates.ingested));
  setText(byId("pending-total"), told.pending ? count(told.pending.total) : "–");
  setText(byId("rejected-total"), count(Object.values(told.rejected).reduce((sum, one) => sum + one, 0)));
};

const queueName = (row) => {
  if (row.queue === "wheel") return "Wheel";
  if (row.queue === "sendback") return "Send-back";
  return `Level ${row.queue}, ${row.delay}`;
};

const number = (cell, value, text) => {
  setText(cell, text);
  cell.classList.toggle("zero", !value);
};

/** Rows of a table, made once and written over; `cells` are [value, text] each, the first is a heading. */
const fill = (body, rows, kinds) => {
  while (body.rows.length > rows.length) body.rows[body.rows.length - 1].remove();
  for (const [index, cells] of rows.entries()) {
    let row = body.rows[index];
    if (!row) {
      row = make("tr", ...cells.map((_, place) => make(`${place ? "td" : "th"}${kinds[place]}`)));
      row.firstChild.scope = "row";
      body.append(row);
    }
    for (const [place, [value, text]] of cells.entries()) number(row.children[place], value, text);
  }
};

const tenths = (perSecond) => (perSecond < 1000 ? perSecond.toFixed(1) : count(perSecond));

// Queues that have had something to do since the page was opened; the others are shown when asked for.
const busy = new Set();
let showsAll = false;

const showQueues = (told) => {
  for (const row of told.queues) {
    if (row.waiting || row.ingested_per_s || row.delivered_per_s || row.p99_ms !== null) busy.add(row.queue);
  }
  const idle = told.queues.filter((row) => !busy.has(row.queue)).length;
  const all = byId("queues-all");
  all.hidden = idle === 0;
  setText(all, showsAll ? "Hide idle queues" : `Show ${count(idle)} idle queues`);
  const shown = told.queues.filter((row) => showsAll || busy.has(row.queue));
  byId("queues").hidden = shown.length === 0;
  const rows = shown.map((row) => [
    [1, queueName(row)],
    [row.waiting, count(row.waiting)],
    [row.unread, row.unread === null ? "–" : count(row.unread)],
    [row.next_due_ms, row.next_due_ms === null ? "–" : fromNow(row.next_due_ms, told.at_ms)],
    [row.ingested_per_s, tenths(row.ingested_per_s)],
    [row.delivered_per_s, tenths(row.delivered_per_s)],
    [row.p99_ms, lasting(row.p99_ms)],
  ]);
  fill(document.querySelector("#queues tbody"), rows, ["", ".n", ".n.wide", ".n", ".n", ".n", ".n.wide"]);
  const places = told.places.map((place) => [
    [1, `${place.topic}-${place.partition}${place.worker === null ? "" : `, worker ${place.worker}`}`],
    [place.waiting, count(place.waiting)],
    [place.unread, place.unread === null ? "–" : count(place.unread)],
    [place.trouble, place.trouble],
  ]);
  fill(document.querySelector("#places tbody"), places, ["", ".n", ".n", ".trouble"]);
  byId("places").hidden = places.length === 0;
  const { assigned, stopped } = told.partitions;
  const disk = told.store.quota_bytes ? `${bytes(told.store.bytes)}, ${bytes(told.store.quota_bytes)} allowed a partition` : bytes(told.store.bytes);
  setText(byId("queues-help"), `${count(assigned)} partitions assigned, ${count(stopped)} stopped; ${disk} on disk.`);
};

const showTopics = (told) => {
  const topics = Object.entries(told.pending_by_topic).sort(([, one], [, other]) => other - one).slice(0, 12);
  const list = byId("topics");
  const most = Math.max(1, ...topics.map(([, pending]) => pending));
  while (list.children.length > topics.length) list.lastChild.remove();
  for (const [index, [topic, pending]] of topics.entries()) {
    let row = list.children[index];
    if (!row) {
      row = make("li", make("span"), make("span"), make("meter"));
      list.append(row);
    }
    const [name, total, meter] = row.children;
    setText(name, topic);
    setText(total, count(pending));
    meter.max = most;
    meter.value = pending;
    meter.setAttribute("aria-label", `${topic}: ${pending}`);
  }
  byId("topics-none").hidden = topics.length > 0;
};

const showRejected = (told) => {
  const codes = Object.entries(told.rejected).filter(([, rejected]) => rejected);
  const words = codes.map(([code, rejected]) => `${code} ${count(rejected)}`).join(", ");
  setText(byId("rejected"), codes.length ? `Rejected since the start: ${words}.` : "Nothing has been rejected since the start.");
};

const showSwitches = (told) => {
  for (const [name, isOff, what] of [
    ["dequeue", told.stop_dequeue, "delivery"],
    ["enqueue", told.stop_enqueue, "intake"],
  ]) {
    const state = byId(`${name}-state`);
    setText(state, isOff ? `is stopped (stop_${name})` : "is on");
    state.classList.toggle("off", isOff);
    setText(byId(name), isOff ? `Start ${what}` : `Stop ${what}`);
    byId(name).disabled = false;
  }
};

const flip = async (name, what) => {
  const isOff = status[`stop_${name}`];
  const consequence = name === "dequeue" ? "Nothing is published until it is started again." : "No schedule topic is read until it is started again.";
  if (!isOff && !(await confirmed(`Stop ${what}?`, [consequence], `Stop ${what}`))) return;
  byId(name).disabled = true;
  try {
    await ask("PUT", "switches", { [`stop_${name}`]: !isOff });
    setText(byId("switch-words"), isOff ? `Starting ${what}.` : `Stopping ${what}.`);
  } catch (error) {
    setText(byId("switch-words"), error.message);
    byId(name).disabled = false;
  }
};

const lost = (fault) => {
  const connection = byId("connection");
  connection.dataset.live = "no";
  if (fault.status === 401) {
    const isWrong = forgetToken();
    setText(connection, isWrong ? "this token is wrong" : "a token is required");
    byId("token").hidden = false;
    setState("unknown");
    setText(byId("state"), "Locked");
    setText(
      byId("words"),
      isWrong
        ? "The token given is not the value of its setting http_token."
        : "The sidecar tells nothing without its token.",
    );
    byId("token-value").focus();
    return;
  }
  setText(connection, "no answer, trying again");
  setState("gone");
  setText(byId("since"), "");
  const known = heardAt ? ` What is below was so at ${timeOfDay(heardAt)}.` : "";
  setText(byId("words"), `${fault.message.charAt(0).toUpperCase()}${fault.message.slice(1)}.${known}`);
  byId("action").hidden = false;
  setText(byId("action"), "see whether its process runs, and read its log; Kafka keeps what is scheduled");
  byId("progress").hidden = true;
  heardAt = 0;
};

const loadHistory = async () => {
  try {
    setHistory(await ask("GET", "history"));
  } catch {
    // The stream tells that something is wrong; the chart keeps what it has.
  }
};

setText(byId("zone"), zone);
startLists();
startWheel(listSpan);
byId("queues-all").addEventListener("click", () => {
  showsAll = !showsAll;
  showQueues(status);
});
byId("dequeue").addEventListener("click", () => flip("dequeue", "delivery"));
byId("enqueue").addEventListener("click", () => flip("enqueue", "intake"));
const connect = follow(show, lost);
byId("token").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken(byId("token-value").value);
  byId("token-value").value = "";
  setText(byId("connection"), "asking with this token");
  connect();
});
setInterval(() => document.hidden || heardAt === 0 || loadHistory(), HISTORY_EVERY_MS);
