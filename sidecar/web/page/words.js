// Numbers and times as people read them, and elements made of text. Nothing here makes markup of a text.

const LANGUAGE = navigator.language;
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const clock = new Intl.DateTimeFormat(LANGUAGE, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const day = new Intl.DateTimeFormat(LANGUAGE, { weekday: "short", day: "numeric", month: "short" });

export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

export const count = (number) => whole.format(number);

/** At most four characters, for a narrow place. */
export const few = (number) => (number < 1000 ? String(number) : compact.format(number));

export const rate = (perSecond) => {
  if (perSecond === 0) return "0/s";
  return (perSecond < 10 ? perSecond.toFixed(1) : compact.format(perSecond)) + "/s";
};

/** A length of time: 12 ms, 4.2 s, 3 min, 5 h, 2 d. */
export const lasting = (ms) => {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${ms < 10 ? +ms.toFixed(1) : Math.round(ms)} ms`;
  if (ms < 10_000) return `${+(ms / 1000).toFixed(1)} s`;
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  return ms < 172_800_000 ? `${Math.round(ms / 3_600_000)} h` : `${Math.round(ms / 86_400_000)} d`;
};

export const timeOfDay = (ms) => clock.format(ms);
export const weekday = (ms) => new Date(ms).toLocaleDateString(LANGUAGE, { weekday: "short" });
export const date = (ms) => day.format(ms);

/** With the day where it is another, to the millisecond. */
export const moment = (ms) => {
  const today = date(ms) === date(Date.now());
  return `${today ? "" : `${date(ms)}, `}${timeOfDay(ms)}.${String(Math.floor(ms) % 1000).padStart(3, "0")}`;
};

/** "in 4 s", "now", "3 min ago". */
export const fromNow = (ms, now) => {
  if (Math.abs(ms - now) < 1000) return "now";
  return ms > now ? `in ${lasting(ms - now)}` : `${lasting(now - ms)} ago`;
};

export const bytes = (number) => {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (number < 1000 || unit === "GB") return `${number < 10 && unit !== "B" ? number.toFixed(1) : Math.round(number)} ${unit}`;
    number /= 1000;
  }
  return "";
};

export const byId = (id) => document.getElementById(id);

/** Writes only what has changed, so that a selection or a reader is not disturbed. */
export const setText = (element, text) => {
  if (element.textContent !== text) element.textContent = text;
};

/** An element of a tag ("p.where" has a class) and what is in it: elements, or text. */
export const make = (what, ...content) => {
  const [tag, ...classes] = what.split(".");
  const element = document.createElement(tag);
  element.classList.add(...classes);
  element.append(...content.map((part) => (part instanceof Node ? part : document.createTextNode(String(part)))));
  return element;
};

/** A button that does something when it is pressed. */
export const button = (label, act, description) => {
  const made = make("button", label);
  made.type = "button";
  if (description) made.setAttribute("aria-label", description);
  made.addEventListener("click", act);
  return made;
};

/** Asks before something is done; true where the answer is yes. */
export const confirmed = (title, lines, yes) => {
  const dialog = byId("dialog");
  byId("dialog-title").textContent = title;
  byId("dialog-body").replaceChildren(...lines.map((line) => make("p", line)));
  byId("dialog-yes").textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
};
