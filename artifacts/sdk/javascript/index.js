// Hooks of metacontroller.k8s.io: a server, and a replay of recorded requests. It needs nothing but Node's own modules.

import { readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";

const REQUEST = ".request.json";
const RESPONSE = ".response.json";

// What the server of the API records in place of a value of a Secret: as it is, and in base64 in data.
const HIDDEN = ["(hidden)", "KGhpZGRlbik="];

/**
 * Returns a server for hooks by path; listen() makes it serve. GET of any path is answered with status 200, for readiness probes.
 * What a hook throws is status 500 with its message, which the server of the API shows in an event; the stack is printed.
 * @param {import("./index.js").Hooks} hooks
 */
export function makeServer(hooks) {
  return createServer(async (request, response) => {
    if (request.method === "GET") {
      return answer(response, 200, "application/json", JSON.stringify({ ready: true }));
    }
    const path = request.url.split("?")[0];
    if (!Object.hasOwn(hooks, path)) {
      return answer(response, 404, "text/plain", `there is no hook at ${path}, only at ${Object.keys(hooks).sort().join(", ")}\n`);
    }
    let body;
    try {
      const chunks = [];
      for await (const chunk of request) {
        chunks.push(chunk);
      }
      body = JSON.parse(Buffer.concat(chunks).toString("utf8"));
    } catch (error) {
      return answer(response, 400, "text/plain", `the request is not JSON: ${error.message}\n`);
    }
    try {
      answer(response, 200, "application/json", encode(await hooks[path](body)));
    } catch (error) {
      console.error(error);
      answer(response, 500, "text/plain", `${error}\n`);
    }
  });
}

// Returns the JSON of what a hook returned. What JSON.stringify leaves out in silence is an error.
function encode(returned) {
  if (returned === undefined) {
    throw new TypeError("the hook returned nothing: does it lack a return?");
  }
  return JSON.stringify(returned, (key, value) => {
    if (typeof value === "number" && !Number.isFinite(value)) {
      throw new RangeError(`${key} is ${value}, which JSON does not have`);
    }
    return value;
  });
}

function answer(response, status, type, text) {
  const body = Buffer.from(text);
  if (response.socket?.server?.listening === false) {
    response.setHeader("Connection", "close");
  }
  response.writeHead(status, { "Content-Type": type, "Content-Length": body.length });
  response.end(body);
}

// How long calls in flight may take after the program was told to end, in milliseconds.
const GRACE = 10_000;

/**
 * Serves hooks by path, such as {"/sync": sync}, until the program gets SIGTERM or Ctrl-C. Calls in flight are answered then, if they take
 * no longer than ten seconds. The environment variables PORT (8080; 0 takes a free one) and HOST (every address) say where.
 * @param {import("./index.js").Hooks} hooks
 */
export function serve(hooks) {
  const server = makeServer(hooks);
  server.listen({ port: Number(process.env.PORT || 8080), host: process.env.HOST || undefined }, () => {
    console.log(`hook listens on port ${server.address().port}`);
  });
  for (const signal of ["SIGTERM", "SIGINT"]) {
    process.once(signal, () => {
      server.close();
      server.closeIdleConnections();
      setTimeout(() => server.closeAllConnections(), GRACE).unref();
    });
  }
  return server;
}

/**
 * Returns one observed child or attachment, such as child(request, "Deployment.apps/v1", name), or undefined. A kind that the request does
 * not have is an error. The name may be "namespace/name"; without a namespace it is that of the parent.
 * @param {import("./index.js").CompositeRequest | import("./index.js").DecoratorRequest} request
 * @param {string} kind
 * @param {string} name
 */
export function child(request, kind, name) {
  const objects = ofKind(request, kind);
  const own = `${(request.parent ?? request.object).metadata.namespace}/`;
  const alone = name.startsWith(own) ? name.slice(own.length) : name;
  return objects[own + alone] ?? objects[alone];
}

/**
 * Returns the observed children or attachments of a kind, in the order of their namespaces and names.
 * @param {import("./index.js").CompositeRequest | import("./index.js").DecoratorRequest} request
 * @param {string} kind
 */
export function children(request, kind) {
  const objects = ofKind(request, kind);
  return Object.keys(objects).sort().map((key) => objects[key]);
}

function ofKind(request, kind) {
  const kinds = request.children ?? request.attachments;
  if (!Object.hasOwn(kinds, kind)) {
    throw new RangeError(`the request has no ${kind}, only ${Object.keys(kinds).sort().join(", ")}: kinds are named Kind.version or Kind.group/version, ` +
      "or the controller does not declare it, or the cluster does not serve it");
  }
  return kinds[kind];
}

/**
 * Calls hooks with the requests recorded in a folder, and returns a text for each response that is not the recorded one. The request
 * HOOK.request.json or HOOK-TEXT.request.json goes to the hook at /HOOK, and HOOK.response.json or HOOK-TEXT.response.json is what it has
 * to return. A value of a Secret that was recorded as hidden is equal to any other one. A folder without requests is an error.
 * @param {string} folder
 * @param {import("./index.js").Hooks} hooks
 */
export async function differences(folder, hooks) {
  const files = readdirSync(folder).filter((file) => file.endsWith(REQUEST)).sort();
  if (files.length === 0) {
    throw new Error(`${folder} holds no recorded request *${REQUEST}`);
  }
  const texts = [];
  for (const file of files) {
    const name = file.slice(0, -REQUEST.length);
    const path = "/" + name.split("-")[0];
    if (!Object.hasOwn(hooks, path)) {
      texts.push(`${file}: there is no hook ${path}, only ${Object.keys(hooks).sort().join(", ")}`);
      continue;
    }
    const wanted = read(folder, name + RESPONSE);
    // As the server of the API reads it: fields that are undefined are not sent.
    const got = JSON.parse(encode(await hooks[path](read(folder, file))));
    hideSecrets(wanted, got);
    if (!isDeepStrictEqual(wanted, got)) {
      texts.push(`${file}: the hook returned\n${JSON.stringify(got, null, 2)}\nand ${name}${RESPONSE} is\n${JSON.stringify(wanted, null, 2)}`);
    }
  }
  return texts;
}

function read(folder, file) {
  return JSON.parse(readFileSync(join(folder, file), "utf8"));
}

// Hides the values of Secrets in both responses that are hidden in one of them.
function hideSecrets(wanted, got) {
  const returned = secretsOf(got);
  for (const [name, secret] of secretsOf(wanted)) {
    const others = valuesOf(returned.get(name));
    valuesOf(secret).forEach((values, i) => {
      for (const key of Object.keys(values)) {
        if (Object.hasOwn(others[i], key) && (HIDDEN.includes(values[key]) || HIDDEN.includes(others[i][key]))) {
          values[key] = others[i][key] = HIDDEN[0];
        }
      }
    });
  }
}

// Returns the Secrets among the children or attachments of a response by namespace and name.
function secretsOf(response) {
  const secrets = new Map();
  for (const field of ["children", "attachments"]) {
    const children = response?.[field];
    for (const child of Array.isArray(children) ? children : []) {
      if (child?.apiVersion === "v1" && child.kind === "Secret") {
        secrets.set(`${child.metadata?.namespace}/${child.metadata?.name}`, child);
      }
    }
  }
  return secrets;
}

// Returns the maps of a Secret in which the server hides values. Annotations may have a copy of it.
function valuesOf(secret) {
  return [secret?.data, secret?.stringData, secret?.metadata?.annotations].map((values) => (values instanceof Object ? values : {}));
}
