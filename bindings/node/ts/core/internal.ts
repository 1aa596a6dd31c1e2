/** The exports for the drop-ins of this package, in addition to the public ones. */

export * from "./index.js";
export { Calls } from "./calls.js";
export { guarded } from "./errors.js";
export { checkNumbers, checked, decode, encode, whole } from "./json.js";
export { NativeCheckpoints, type NativeSession, type NativeStore } from "./native.js";
export { native as nativePolicy } from "./policy.js";
