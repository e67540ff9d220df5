import type { Server } from "node:http";

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
 * Calls hooks with the requests recorded in a folder, and returns a text for each response that is not the recorded one. A value of a
 * Secret that was recorded as hidden is equal to any other one.
 */
export function differences(folder: string, hooks: Hooks): Promise<string[]>;
