// Scores of many pairs, requested in batches. A run that was aborted or failed continues where it stopped.

import { post } from "./api.js";
import { RequestError, UserError } from "./errors.js";

const MAX_PAIRS = 256; // per request: for regular progress, and requests far below the server's timeout
const MAX_BYTES = 200_000; // per request, of sentences, for the same reasons
const RESERVED_BYTES = 500; // for the other fields of a request

const encoder = new TextEncoder();

export class Scoring {
  // `info` is the response of `/info`.
  constructor({ a, b, lines }, info) {
    Object.assign(this, { a, b, lines, info });
    this.done = 0;
    this.scores = Object.fromEntries(info.metrics.map((metric) => [metric, new Float64Array(a.length)]));
  }

  get total() {
    return this.a.length;
  }

  // Score the remaining pairs; call `onProgress()` before each request.
  async run(signal, onProgress) {
    while (this.done < this.total) {
      onProgress();
      const start = this.done;
      const pairs = this.batch(start);
      const { model, fingerprint, metrics } = this.info;
      let response;
      try {
        response = await post("similarity", { model, pairs, metrics }, signal);
      } catch (error) {
        throw this.nameLine(error, start);
      }
      if (signal.aborted) return;
      if (response.fingerprint !== fingerprint) {
        throw new UserError("The model was replaced while it scored the pairs: reload the page.");
      }
      response.similarities.forEach((row, i) => {
        for (const metric of metrics) this.scores[metric][start + i] = row[metric];
      });
      this.done = start + pairs.length;
    }
    onProgress();
  }

  // As many pairs as fit into a request; at least one, which the server rejects if it is too large.
  batch(start) {
    const { max_client_batch_size: sentences, max_body_bytes: bytes } = this.info;
    const maxPairs = Math.max(1, Math.min(MAX_PAIRS, Math.floor(sentences / 2)));
    const maxBytes = Math.min(MAX_BYTES, bytes - RESERVED_BYTES);
    const pairs = [];
    let size = 0;
    for (let i = start; i < this.total && pairs.length < maxPairs; i += 1) {
      const pair = [this.a[i], this.b[i]];
      size += encoder.encode(JSON.stringify(pair)).length + 1;
      if (pairs.length && size > maxBytes) break;
      pairs.push(pair);
    }
    return pairs;
  }

  // Replace the position in a request, as in `pairs[3][1]`, by the line of the file.
  nameLine(error, start) {
    if (!(error instanceof RequestError)) return error;
    const message = error.message.replace(/^pairs\[(\d+)\]\[([01])\]/, (_, index, side) => {
      const line = this.lines[start + Number(index)].toLocaleString("en");
      return `The ${side === "0" ? "first" : "second"} sentence of line ${line}`;
    });
    return new RequestError(message, error.status, error.retryAfter);
  }
}
