import type { Server } from "node:http";
import type { CompositeRequest, DecoratorRequest, Object } from "./types.js";

export * from "./types.js";

/** Hooks by path, such as {"/sync": sync}. A hook may be asynchronous. */
export interface Hooks {
  [path: string]: (request: any) => any;
}

/** Returns a server for hooks; listen() makes it serve. */
export function makeServer(hooks: Hooks): Server;

/** Serves hooks at $PORT (8080) until the program gets SIGTERM or Ctrl-C. */
export function serve(hooks: Hooks): Server;

/**
 * Returns one observed child or attachment, such as child(request, "Deployment.apps/v1", name). A kind that the request does not have is an
 * error. The name may be "namespace/name"; without a namespace it is that of the parent.
 */
export function child(request: CompositeRequest | DecoratorRequest, kind: string, name: string): Object | undefined;

/** Returns the observed children or attachments of a kind, in the order of their namespaces and names. */
export function children(request: CompositeRequest | DecoratorRequest, kind: string): Object[];

/**
 * Calls hooks with the requests recorded in a folder, and returns a text for each response that is not the recorded one. A value of a
 * Secret that was recorded as hidden is equal to any other one.
 */
export function differences(folder: string, hooks: Hooks): Promise<string[]>;
