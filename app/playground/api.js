// Asking the service. Addresses are relative, so that the page works behind any prefix.

const KEY = "lattemix-key";

// What the service, or the way to it, answered instead of what was asked; its message is for people.
export class Refused extends Error {
  constructor(message, status = 0, retryAfter = 0) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

// Keep a key until the tab is closed; say whether it could be one: visible ASCII, which a header carries.
export function keepKey(key) {
  const usable = /^[!-~]+$/.test(key);
  if (usable) sessionStorage.setItem(KEY, key);
  return usable;
}

export const info = () => answered("info", {});

export const latent = (dim, index) => answered(`latents/${dim}/${index}`, {});

export const post = (path, body, signal) => answered(path, posted(body, signal));

// The similarity of each with each, as numbers [N * N], row by row.
export async function matrix(body, signal) {
  const request = posted(body, signal);
  request.headers.accept = "application/x-npy";
  const response = await fetched("matrix", request);
  return readNpy(await response.arrayBuffer());
}

function posted(body, signal) {
  const headers = { "content-type": "application/json" };
  return { method: "POST", headers, body: JSON.stringify(body), signal };
}

async function answered(path, request) {
  return (await fetched(path, request)).json();
}

async function fetched(path, request) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...request.headers, ...(key ? { authorization: `Bearer ${key}` } : {}) };
  let response;
  try {
    response = await fetch(path, { ...request, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The service cannot be reached. Is it running?");
  }
  if (response.ok) return response;
  if (response.status === 401) sessionStorage.removeItem(KEY);
  const retryAfter = Number(response.headers.get("retry-after")) || 0;
  const said = await response.json().catch(() => ({}));
  const message = said.error ?? `The service answered ${response.status} ${response.statusText}.`;
  throw new Refused(message, response.status, retryAfter);
}

// A float32 array in numpy's format: magic, version, the header's length and the header first.
export function readNpy(buffer) {
  const start = 10 + new DataView(buffer).getUint16(8, true);
  return new Float32Array(buffer.slice(start));
}

// Mixtures as `/embed` writes them in base64.
export function readBase64(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  return new Float32Array(bytes.buffer);
}
