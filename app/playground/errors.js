// Errors whose messages are for users, and how errors are shown.

import { make } from "./common.js";

export class UserError extends Error {}

// An error response, or no response (status 0).
export class RequestError extends UserError {
  constructor(message, status = 0, retryAfter = 0) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter; // seconds; 0: do not retry
  }
}

// Show an error in an element. `retry()` is offered if the same input may succeed the next time.
export function showError(element, error, retry) {
  const expected = error instanceof UserError;
  if (!expected) console.error(error);
  element.textContent = expected ? error.message : `Unexpected error: ${error.message}`;
  const temporary = error instanceof RequestError && (error.status === 0 || error.status >= 500);
  if ((expected && !temporary) || error.retryAfter) return;
  const button = make("button", { type: "button" }, "Try again");
  button.addEventListener("click", retry);
  element.append(" ", button);
}
