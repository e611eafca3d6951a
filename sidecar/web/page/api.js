// Talks to the sidecar: the token, requests, and the stream of events with its reconnects.

const TOKEN = "timewheel-token";
const SILENT_MS = 10_000;
const RETRY_MS_MAX = 8_000;

export class Refusal extends Error {
  constructor(status, words) {
    super(words);
    this.status = status;
  }
}

export const useToken = (token) => sessionStorage.setItem(TOKEN, token);

/** True if there was one. */
export const forgetToken = () => {
  const token = sessionStorage.getItem(TOKEN);
  sessionStorage.removeItem(TOKEN);
  return token !== null;
};

const headers = (more = {}) => {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
};

const refusal = async (response) => {
  let words = `the sidecar answers ${response.status}`;
  try {
    const told = await response.json();
    const detail = told.detail ?? told.title;
    if (typeof detail === "string") words = detail;
    else if (detail?.message) words = detail.message;
    else if (Array.isArray(detail)) words = detail.map((one) => one.msg).join("; ");
  } catch {
    // No JSON: the status has to do.
  }
  return new Refusal(response.status, words);
};

/** JSON of the API; throws a Refusal in words, with status 0 where nobody answers. */
export const ask = async (method, path, body, timeoutMs = 20_000) => {
  let response;
  try {
    response = await fetch(`api/v1/${path}`, {
      method,
      headers: headers(body === undefined ? {} : { "Content-Type": "application/json" }),
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout(timeoutMs),
      cache: "no-store",
    });
  } catch {
    throw new Refusal(0, "the sidecar does not answer");
  }
  if (!response.ok) throw await refusal(response);
  return response.status === 204 ? null : response.json();
};

/**
 * Follows the status. `told` gets each one; `gone` is called with a Refusal when the stream has broken, and it is tried
 * again. While the page is hidden nothing is asked for. Returns what connects at once.
 */
export const follow = (told, gone) => {
  let controller = null;
  let retryMs = 500;
  let timer = 0;

  const connect = async () => {
    clearTimeout(timer);
    controller?.abort();
    const mine = (controller = new AbortController());
    let silence = 0;
    const heard = () => {
      clearTimeout(silence);
      silence = setTimeout(() => mine.abort(), SILENT_MS);
    };
    let fault = new Refusal(0, "the sidecar does not answer");
    try {
      heard();
      const response = await fetch("api/v1/events", { headers: headers(), signal: mine.signal, cache: "no-store" });
      if (!response.ok) throw await refusal(response);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        heard();
        const events = (rest + value).split("\n\n");
        rest = events.pop();
        for (const event of events) {
          const data = event.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
          if (data.length) {
            retryMs = 500;
            told(JSON.parse(data.join("\n")));
          }
        }
      }
    } catch (error) {
      if (error instanceof Refusal) fault = error;
    } finally {
      clearTimeout(silence);
    }
    if (mine !== controller || document.hidden) return;
    gone(fault);
    if (fault.status === 401) return; // until there is a token
    timer = setTimeout(connect, retryMs);
    retryMs = Math.min(2 * retryMs, RETRY_MS_MAX);
  };

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      clearTimeout(timer);
      controller?.abort();
    } else {
      connect();
    }
  });
  connect();
  return connect;
};
