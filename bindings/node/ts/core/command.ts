#!/usr/bin/env node
/** The command line `loopstore`, which is a part of the package. */

import { runCommand } from "./native.js";

process.exitCode = runCommand(["loopstore", ...process.argv.slice(2)]);
