#!/usr/bin/env node
/** The command line `loopstore`, which comes along with the package. */

import { runCommand } from "./native.js";

process.exitCode = runCommand(["loopstore", ...process.argv.slice(2)]);
