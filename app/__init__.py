"""The REST service.

The path of a request to the model, and the errors of each step:

1. `run._CloseWhenDraining` adds `connection: close` during shutdown.
2. `observe.Observe` gives it an id and a `Trace`, and logs and counts its response.
3. CORS, then `keys.RequireKey`: 401, or 429 over a key's rate.
4. `limits.Admission` counts it: 429 over the limit, 413 or 408 for its body.
5. `routes.route.ModelRoute` parses the body (422) under the request's timeout (504).
6. The endpoint calls `routes.context.RequestContext.encode`, which checks the texts (400, 413).
7. `engine.Engine.encode`: cache, tokenization, and 429 if the queue is too long.
8. `engine.Batcher` runs sentences of all requests in shared batches (`lattemix.Encoder.run`; 424).
9. The endpoint scores and serialises in `RequestContext.compute`.

Static models have no queue and no cache: step 7 encodes a request's texts in one thread job
(`Batcher.encode_static`) and step 8 is left out.

`Engine` does not use `Encoder.encode`: that encodes one list, while batches here are formed from
the sentences of all waiting requests.
"""
