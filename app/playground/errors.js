// Errors whose messages are for users.

export class UserError extends Error {}

// An error response, or no response (status 0).
export class RequestError extends UserError {
  constructor(message, status = 0, retryAfter = 0) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter; // seconds; 0: do not retry
  }
}
