// Requests to the service. URLs are relative, so that the page works behind any path prefix.

import { RequestError } from "./errors.js";

const KEY = "lattemix-key";

let model = null; // null: the server's default

// Store a key until the tab is closed. Returns false if no HTTP header can carry it.
export function storeKey(key) {
  const valid = /^[!-~]+$/.test(key);
  if (valid) sessionStorage.setItem(KEY, key);
  return valid;
}

// Choose the model of all requests that follow.
export const setModel = (name) => (model = name);

export const hasKey = () => sessionStorage.getItem(KEY) !== null;

const withModel = (path, name) => (name ? `${path}?${new URLSearchParams({ model: name })}` : path);

// Describe a model; null is the default.
export async function getInfo(name) {
  const info = await fetchJson(withModel("info", name));
  if (Array.isArray(info?.models) && Array.isArray(info.metrics)) return info;
  throw new RequestError("The response of the service does not describe a model.");
}

export const getLatent = (dim, index) => fetchJson(withModel(`latents/${dim}/${index}`, model));

export const post = (path, body, signal) => fetchJson(path, jsonRequest(body, signal));

// The similarity of all pairs of inputs: [N * N], row by row.
export async function postMatrix(body, signal) {
  const request = jsonRequest(body, signal);
  request.headers.accept = "application/x-npy";
  const response = await send("matrix", request);
  const scores = parseNpy(await read(response.arrayBuffer()));
  if (scores?.length !== body.inputs.length ** 2) throw new RequestError("The response of the service is not a matrix.");
  return scores;
}

function jsonRequest(body, signal) {
  const headers = { "content-type": "application/json" };
  return { method: "POST", headers, body: JSON.stringify({ model, ...body }), signal };
}

const fetchJson = async (path, request = {}) => read((await send(path, request)).json());

async function read(content) {
  try {
    return await content;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    const reason = error instanceof SyntaxError ? "is not JSON" : "is incomplete: the connection was lost";
    throw new RequestError(`The response of the service ${reason}.`);
  }
}

async function send(path, request) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...request.headers, ...(key ? { authorization: `Bearer ${key}` } : {}) };
  let response;
  try {
    response = await fetch(path, { ...request, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new RequestError("The service cannot be reached. Is it running?");
  }
  if (response.ok) return response;
  if (response.status === 401) sessionStorage.removeItem(KEY);
  const retryAfter = Number(response.headers.get("retry-after")) || 0;
  const body = await response.json().catch(() => ({}));
  const message = body.error ?? `The service answered ${response.status} ${response.statusText}.`;
  throw new RequestError(message, response.status, retryAfter);
}

// Read a float32 array in numpy's format: magic string, version, header length, header, data. Null
// if the buffer has another content.
function parseNpy(buffer) {
  const magic = String.fromCharCode(...new Uint8Array(buffer.slice(0, 6)));
  if (magic !== "\x93NUMPY" || buffer.byteLength < 10) return null;
  const data = buffer.slice(10 + new DataView(buffer).getUint16(8, true));
  return data.byteLength % 4 ? null : new Float32Array(data);
}

// Wait for all requests; if several fail, throw the error of the first in the list.
export async function allInOrder(requests) {
  const outcomes = await Promise.allSettled(requests);
  const failure = outcomes.find(({ status }) => status === "rejected");
  if (failure) throw failure.reason;
  return outcomes.map(({ value }) => value);
}

// Read a mixture from `/embed` with format base64.
export function parseBase64(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  return new Float32Array(bytes.buffer);
}
