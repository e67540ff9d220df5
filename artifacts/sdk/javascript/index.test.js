// Run with: node --test

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { child, children, differences, makeServer, serve } from "./index.js";

function sync(request) {
  const name = request.parent.metadata.name;
  return { status: { name }, children: [{ apiVersion: "v1", kind: "ConfigMap", metadata: { name } }], finalized: undefined };
}

async function call(t, path, body, hooks = { "/sync": sync }) {
  const server = makeServer(hooks);
  await once(server.listen(0, "127.0.0.1"), "listening");
  t.after(() => server.close());
  const response = await fetch(`http://127.0.0.1:${server.address().port}${path}`, body === undefined ? {} : { method: "POST", body });
  return { status: response.status, text: await response.text() };
}

test("calls the hook", async (t) => {
  const { status, text } = await call(t, "/sync", '{"parent": {"metadata": {"name": "web"}}}');
  assert.equal(status, 200);
  assert.deepEqual(JSON.parse(text), {
    status: { name: "web" },
    children: [{ apiVersion: "v1", kind: "ConfigMap", metadata: { name: "web" } }],
  });
});

test("is ready", async (t) => {
  assert.deepEqual(await call(t, "/healthz"), { status: 200, text: '{"ready":true}' });
});

test("names the hooks there are", async (t) => {
  assert.deepEqual(await call(t, "/finalize", "{}"), { status: 404, text: "there is no hook at /finalize, only at /sync\n" });
});

test("says what the hook threw", async (t) => {
  t.mock.method(console, "error", () => {});
  const { status, text } = await call(t, "/sync", "{}");
  assert.equal(status, 500);
  assert.match(text, /^TypeError: /);
});

test("says what is missing in a response", async (t) => {
  t.mock.method(console, "error", () => {});
  const folder = mkdtempSync(join(tmpdir(), "hook-"));
  t.after(() => rmSync(folder, { recursive: true }));
  writeFileSync(join(folder, "sync.request.json"), "{}");
  writeFileSync(join(folder, "sync.response.json"), '{"status": {"load": null}}');
  for (const [hook, want] of [
    [() => {}, "TypeError: the hook returned nothing: does it lack a return?"],
    [() => ({ status: { load: NaN } }), "RangeError: load is NaN, which JSON does not have"],
  ]) {
    assert.deepEqual(await call(t, "/sync", "{}", { "/sync": hook }), { status: 500, text: `${want}\n` });
    await assert.rejects(differences(folder, { "/sync": hook }), (error) => `${error}` === want);
  }
});

test("refuses what is no JSON", async (t) => {
  const { status, text } = await call(t, "/sync", "{");
  assert.equal(status, 400);
  assert.match(text, /^the request is not JSON/);
});

test("ends with SIGTERM", async () => {
  const program = `import { serve } from ${JSON.stringify(new URL("./index.js", import.meta.url).href)}; serve({});`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", program], { env: { ...process.env, PORT: "0", HOST: "127.0.0.1" } });
  const [line] = await once(child.stdout, "data");
  assert.match(String(line), /^hook listens on port [1-9][0-9]*\n$/);
  child.kill("SIGTERM");
  const [code] = await once(child, "exit");
  assert.equal(code, 0);
});

test("answers calls in flight when it ends", async () => {
  const program = `
    import { serve } from ${JSON.stringify(new URL("./index.js", import.meta.url).href)};
    serve({ "/sync": () => new Promise((resolve) => {
      process.once("SIGTERM", () => setTimeout(() => resolve({ status: { late: true } }), 200));
      console.log("called");
    }) });`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", program], { env: { ...process.env, PORT: "0", HOST: "127.0.0.1" } });
  const [line] = await once(child.stdout, "data");
  const ended = once(child, "exit");
  const request = fetch(`http://127.0.0.1:${/\d+/.exec(String(line))[0]}/sync`, { method: "POST", body: "{}" });
  await once(child.stdout, "data");
  child.kill("SIGTERM");
  assert.deepEqual(await (await request).json(), { status: { late: true } });
  assert.deepEqual(await ended, [0, null]);
});

test("takes an empty PORT for none", async (t) => {
  const { PORT, HOST } = process.env;
  t.after(() => {
    for (const [name, value] of Object.entries({ PORT, HOST })) {
      if (value === undefined) {
        delete process.env[name];
      } else {
        process.env[name] = value;
      }
    }
  });
  // No machine has this address: the error tells the port.
  Object.assign(process.env, { PORT: "", HOST: "192.0.2.1" });
  const [error] = await once(serve({}), "error");
  assert.equal(error.port, 8080, error);
});

test("finds children whatever their keys", () => {
  for (const [what, namespace, key, name, found] of [
    ["version v2", "shop", "shop/web", "web", true],
    ["version v2, with the namespace", "shop", "shop/web", "shop/web", true],
    ["version v1", "shop", "web", "web", true],
    ["version v1, with the namespace", "shop", "web", "shop/web", true],
    ["a parent without a namespace", undefined, "shop/web", "shop/web", true],
    ["a parent without a namespace, and no namespace", undefined, "shop/web", "web", false],
    ["a child without a namespace", undefined, "web", "web", true],
    ["another namespace", "shop", "shop/web", "other/web", false],
  ]) {
    for (const [parent, observed] of [["parent", "children"], ["object", "attachments"]]) {
      const object = { kind: "Deployment" };
      const request = { [parent]: { metadata: { name: "p", namespace } }, [observed]: { "Deployment.apps/v1": { [key]: object }, "Pod.v1": {} } };
      assert.equal(child(request, "Deployment.apps/v1", name), found ? object : undefined, what);
      assert.deepEqual(children(request, "Deployment.apps/v1"), [object], what);
      assert.throws(() => child(request, "Deployment.v1", name), /has no Deployment.v1, only Deployment.apps\/v1, Pod.v1/);
    }
  }
});

test("replays recorded requests", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "replay-"));
  t.after(() => rmSync(folder, { recursive: true }));
  await assert.rejects(differences(folder, { "/sync": sync }), /holds no recorded request/);
  const record = (name, value) => writeFileSync(join(folder, name), JSON.stringify(value));
  const request = { parent: { metadata: { name: "web" } } };
  record("sync-web.request.json", request);
  record("sync-web.response.json", sync(request));
  assert.deepEqual(await differences(folder, { "/sync": sync }), []);
  record("sync-web.response.json", { status: { name: "old" } });
  const [text] = await differences(folder, { "/sync": sync });
  assert.match(text, /"name": "old"/);
  record("finalize.request.json", {});
  assert.equal((await differences(folder, { "/sync": sync }))[0], "finalize.request.json: there is no hook /finalize, only /sync");
});

test("compares Secrets with hidden values", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "replay-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const secret = (fields) => ({ apiVersion: "v1", kind: "Secret", metadata: { name: "a" }, ...fields });
  const copied = (text) => secret({ metadata: { annotations: { copy: text } } });
  const hidden = "KGhpZGRlbik=";
  for (const [what, field, recorded, returned, equal] of [
    ["data", "children", secret({ data: { k: hidden } }), secret({ data: { k: "bmV3" } }), true],
    ["stringData", "children", secret({ stringData: { k: "(hidden)" } }), secret({ stringData: { k: "new" } }), true],
    ["an attachment", "attachments", secret({ data: { k: hidden } }), secret({ data: { k: "bmV3" } }), true],
    ["a copy in an annotation", "children", copied("(hidden)"), copied("new"), true],
    ["what is not hidden", "children", secret({ data: { k: "YQ==" } }), secret({ data: { k: "bmV3" } }), false],
    ["a key more", "children", secret({ data: { k: hidden } }), secret({ data: { k: "bmV3", l: "bmV3" } }), false],
    ["a key less", "children", secret({ data: { k: hidden, l: hidden } }), secret({ data: { k: "bmV3" } }), false],
    ["another type", "children", secret({ data: { k: hidden }, type: "Opaque" }), secret({ data: { k: "bmV3" } }), false],
    ["another kind", "children", secret({ kind: "ConfigMap", data: { k: "(hidden)" } }), secret({ kind: "ConfigMap", data: { k: "new" } }), false],
    ["what is no object", "children", null, null, true],
    ["what has no fields", "children", secret({ metadata: 1, data: [{}] }), secret({ metadata: 1, data: [{}] }), true],
  ]) {
    writeFileSync(join(folder, "sync.request.json"), "{}");
    writeFileSync(join(folder, "sync.response.json"), JSON.stringify({ [field]: [recorded] }));
    const texts = await differences(folder, { "/sync": () => ({ [field]: [returned] }) });
    assert.equal(texts.length === 0, equal, `${what}: ${texts}`);
  }
});

test("declares the fields of the schema", () => {
  const types = readFileSync(new URL("./types.d.ts", import.meta.url), "utf8");
  const folder = new URL("../../../docs/reference/hook-schema/", import.meta.url);
  for (const name of ["composite-request", "composite-response.v2", "decorator-request", "decorator-response.v2", "customize-request"]) {
    const schema = JSON.parse(readFileSync(new URL(`${name}.json`, folder), "utf8"));
    const [, body] = types.match(new RegExp(`export interface ${schema.title} {\n([^}]*(?:}[^\n]*\n[^}]*)*?)\n}\n`));
    for (const field of Object.keys(schema.properties)) {
      const mark = (schema.required ?? []).includes(field) ? "" : "\\?";
      assert.match(body, new RegExp(`^  ${field}${mark}: `, "m"), `${schema.title}.${field}`);
    }
  }
});
