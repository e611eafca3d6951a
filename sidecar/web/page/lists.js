// What is listed on demand: pending messages with cancel, dead letters with redrive.

import { ask } from "./api.js";
import { button, byId, bytes, confirmed, count, date, fromNow, make, moment, setText, timeOfDay } from "./words.js";

const PAGE = 50;
const LETTERS = 20;
const GROUPS_MAX = 500;
const PREVIEW_BYTES = 2_000;
const OUTCOME_TRIES = 3;
const OUTCOME_WAIT_MS = 5_000;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// --- pending ---------------------------------------------------------------------------------------------------------

let span = null; // [from, to] of a cell of the heat map
let listed = new URLSearchParams(); // what the list is of, whatever has been typed since
let following = null; // where its next page begins
let pendingAsked = 0;

const loadPending = () => {
  const query = new URLSearchParams({ limit: PAGE });
  const topic = byId("pending-topic").value.trim();
  const id = byId("pending-id").value.trim();
  if (topic) query.set("topic", topic);
  if (id) query.set("id", id);
  if (span) {
    query.set("from", span[0]);
    query.set("to", span[1]);
    query.set("by", "act_ms"); // as the cell has counted them
  }
  listed = query;
  return loadPage(null);
};

const loadPage = async (from) => {
  const mine = ++pendingAsked;
  const query = new URLSearchParams(listed);
  if (from) query.set("after", from);
  const words = byId("pending-words");
  try {
    const told = await ask("GET", `pending?${query}`);
    if (mine !== pendingAsked) return; // pressed once more meanwhile
    const list = byId("pending");
    const before = from ? list.children.length : 0; // the total counts from this page on
    if (!from) list.replaceChildren();
    list.append(...told.messages.map(pendingRow));
    following = told.next;
    byId("pending-more").hidden = !following;
    const total = before + told.total;
    const when = span ? `, from ${date(span[0])}, ${timeOfDay(span[0])} to ${timeOfDay(span[1])}` : "";
    const rest = following ? `, the first ${count(list.children.length)} shown` : "";
    setText(words, total ? `${count(total)} pending${when}${rest}` : `Nothing is pending${when}.`);
  } catch (error) {
    if (mine !== pendingAsked) return;
    setText(words, error.message);
  }
  byId("pending-any-time").hidden = span === null;
};

const pendingRow = (message) => {
  const now = Date.now();
  const row = make(
    "li",
    make("span.what", message.id || "(no id)"),
    make("span.where", `${moment(message.deliver_ms)} (${fromNow(message.deliver_ms, now)}) to ${message.topic}; wheel partition ${message.partition}, offset ${message.offset}`),
  );
  if (message.receipt) row.append(button("Cancel", (event) => cancel(message, row, event.currentTarget), `Cancel ${message.id}`));
  return row;
};

const cancel = async (message, row, pressed) => {
  const lines = [`It is due ${moment(message.deliver_ms)} and would go to ${message.topic}.`];
  if (!(await confirmed(`Cancel ${message.id}?`, lines, "Cancel the message"))) return;
  const why = make("span.why.readout", "asking …");
  why.setAttribute("role", "status");
  pressed.disabled = true;
  row.append(why);
  try {
    const told = await ask("DELETE", `messages/${encodeURIComponent(message.receipt)}`);
    setText(why, "The cancel is written; waiting for its outcome …");
    setText(why, await outcome(told));
    pressed.remove();
  } catch (error) {
    setText(why, error.message);
    pressed.disabled = false;
  }
};

const OUTCOMES = {
  cancelled: "Cancelled.",
  too_late: "Too late: it has been delivered, rejected or cancelled before.",
  unknown: "No such message is pending any more.",
};

/** What became of a cancel, in words. */
const outcome = async (told) => {
  for (let tries = 0; tries < OUTCOME_TRIES; tries++) {
    try {
      const found = await ask("GET", `cancels/${told.partition}/${told.offset}?wait_ms=${OUTCOME_WAIT_MS}`);
      return OUTCOMES[found.outcome] ?? found.outcome;
    } catch (error) {
      if (error.status !== 404) return error.message;
    }
  }
  return "The cancel is written; its outcome is not known yet.";
};

// --- dead letters ----------------------------------------------------------------------------------------------------

let group = null;
let after = null;
let lettersAsked = 0;

const loadGroups = async () => {
  const words = byId("dead-words");
  setText(words, "reading …");
  try {
    const groups = [];
    let next = "";
    do {
      const told = await ask("GET", `dead-letters${next && `?${new URLSearchParams({ after: next })}`}`, undefined, 60_000);
      groups.push(...told.groups);
      next = told.next;
    } while (next && groups.length < GROUPS_MAX);
    byId("groups").replaceChildren(...groups.map(groupRow));
    setText(words, groups.length ? "" : "There are no dead letters.");
    setText(byId("dead-read"), "Read again");
  } catch (error) {
    setText(words, error.message);
  }
};

const groupRow = (summary) => {
  const reasons = Object.entries(summary.reasons ?? {}).map(([reason, number]) => `${reason} ${count(number)}`);
  const redriven = summary.redriven ? `, ${count(summary.redriven)} redriven` : "";
  const waiting = summary.exact ? `${count(summary.waiting)} waiting` : `${count(summary.total)}, too many to be counted by reason`;
  const row = make(
    "li",
    make("span.what", summary.group),
    make("span.where", `${waiting}${redriven}${reasons.length ? `: ${reasons.join(", ")}` : ""}`),
  );
  if (summary.waiting !== 0) row.append(button("Show", () => showLetters(summary.group), `Show the dead letters of ${summary.group}`));
  return row;
};

const showLetters = async (name) => {
  group = name;
  after = null;
  byId("letters").replaceChildren();
  const title = byId("letters-title");
  title.hidden = false;
  title.replaceChildren(`Dead letters of ${name} `, button("Redrive all", () => redrive(null, null), `Redrive all dead letters of ${name}`));
  await moreLetters();
  title.focus();
};

const moreLetters = async () => {
  const mine = ++lettersAsked;
  const query = new URLSearchParams({ limit: LETTERS, preview_bytes: PREVIEW_BYTES });
  if (after) query.set("after", after);
  try {
    const told = await ask("GET", `dead-letters/${encodeURIComponent(group)}?${query}`, undefined, 60_000);
    if (mine !== lettersAsked) return;
    byId("letters").append(...told.letters.map(letterRow));
    after = told.next;
    byId("letters-more").hidden = !after;
  } catch (error) {
    if (mine !== lettersAsked) return;
    setText(byId("dead-words"), error.message);
  }
};

const header = (letter, name) => letter.headers.findLast(([one]) => one === name)?.[1] ?? null;

const letterRow = (letter) => {
  const source = header(letter, "ERROR_TOPIC");
  const origin = source
    ? `${source}-${header(letter, "ERROR_PARTITION")} at ${header(letter, "ERROR_OFFSET")}`
    : (header(letter, "RETRY_TOPIC") ?? "an unknown topic");
  const row = make(
    "li",
    make("span.what", letter.id || `${letter.partition}-${letter.offset}`),
    make("span.where", `${letter.reason}, ${moment(letter.timestamp_ms)}, from ${origin}`),
  );
  if (!letter.is_redriven) row.append(button("Redrive", () => redrive(letter, row), `Redrive ${letter.id}`));
  const why = header(letter, "ERROR_MESSAGE");
  if (why) row.append(make("p.why", why));
  row.append(preview(letter), headers(letter));
  return row;
};

const preview = (letter) => {
  if (letter.value_bytes === null) return make("p.why.where", "No value.");
  const isBinary = letter.value === undefined;
  const text = (isBinary ? letter.value_base64 : letter.value) ?? "";
  const isCut = letter.value_bytes > PREVIEW_BYTES;
  const note = [isBinary ? "in base64" : "", isCut ? `the first ${bytes(PREVIEW_BYTES)} of ${bytes(letter.value_bytes)}` : ""].filter(Boolean);
  const box = make("div.why", make("pre", text || "(empty)"));
  if (note.length) box.append(make("p.where", note.join(", ")));
  return box;
};

const headers = (letter) => {
  const list = make("dl");
  for (const [name, value] of letter.headers) list.append(make("dt", name), make("dd", value ?? "(null)"));
  const number = letter.headers.length;
  return make("details", make("summary", number === 1 ? "1 header" : `${number} headers`), list);
};

const report = (told, would) => {
  const lines = Object.entries(told.destinations).map(([topic, number]) => `${count(number)} ${would}redriven to ${topic}`);
  if (told.parked) lines.push(`${count(told.parked)} ${would}parked: they have been redriven too often`);
  for (const { reason, count: number } of told.stayed) lines.push(`${count(number)} cannot be redriven: ${reason}`);
  return lines.length ? lines : ["There is nothing to redrive."];
};

/** The report of a redrive, waited for while it runs. */
const finished = async (told, words) => {
  while (told.state === "running") {
    setText(words, `${count(told.gone_through)} of ${count(told.total)} looked at …`);
    await pause(1_000);
    told = await ask("GET", `redrives/${encodeURIComponent(told.id)}`);
  }
  setText(words, "");
  if (told.state !== "done") throw new Error(told.reason ?? `The redrive was ${told.state}.`);
  return told;
};

/** One letter, or all of the group; asks what it would do before it does it. */
const redrive = async (letter, row) => {
  const words = byId("dead-words");
  const path = `dead-letters/${encodeURIComponent(group)}/redrive`;
  const body = letter ? { filter: [`id=${letter.id}`] } : {};
  try {
    const would = await finished(await ask("POST", path, { ...body, dry_run: true }), words);
    const title = letter ? `Redrive ${letter.id}?` : `Redrive all dead letters of ${group}?`;
    if (!(await confirmed(title, report(would, "would be "), "Redrive"))) return;
    const told = await finished(await ask("POST", path, body), words);
    setText(words, report(told, "").join("; "));
    if (row && !told.stayed.length) row.remove();
    const kept = words.textContent;
    await loadGroups();
    if (!letter) await showLetters(group);
    setText(words, kept);
  } catch (error) {
    setText(words, error.message);
  }
};

// --- start -----------------------------------------------------------------------------------------------------------

/** List what a cell of the heat map holds. */
export const listSpan = (from, to) => {
  span = [from, to];
  loadPending();
  byId("pending-title").focus();
};

export const startLists = () => {
  byId("pending-form").addEventListener("submit", (event) => {
    event.preventDefault();
    loadPending();
  });
  byId("pending-any-time").addEventListener("click", () => {
    span = null;
    loadPending();
  });
  byId("pending-more").addEventListener("click", () => loadPage(following));
  byId("dead-read").addEventListener("click", loadGroups);
  byId("letters-more").addEventListener("click", moreLetters);
};
