'use strict';
// Boot a release alone on a spare port of loopback, see that it serves, and end it. Prints one line of JSON:
// {"ok": true, "seconds": 2.1} or {"ok": false, "reason": "...", "log": ["last lines of its output"]}.
// Usage: node probe_release.js '{"ecosystem": …, "name": …, "directory": …, "release": …, "dotenv": …, "limit_s": …}'

const { fork } = require('node:child_process');
const http = require('node:http');
const net = require('node:net');
const path = require('node:path');
const { setTimeout: sleep } = require('node:timers/promises');

const LOG_LINES = 20;
const POLL_MS = 100;
const ANSWER_LIMIT_MS = 5000;
const asked = JSON.parse(process.argv[2]);

/** A port that nobody listens on now. */
function findPort() {
  return new Promise((resolve, reject) => {
    const server = net.createServer();
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

/** Ask for the health once: '' when it serves as the asked release, else what is wrong. */
function ask(port) {
  return new Promise((resolve) => {
    const request = http.get({ host: '127.0.0.1', port, path: '/_health', agent: false, timeout: ANSWER_LIMIT_MS }, (response) => {
      response.resume();
      const found = response.headers['x-release'];
      if (response.statusCode < 200 || response.statusCode > 299) resolve(`its health check answers with status ${response.statusCode}`);
      else if (found !== asked.release) resolve(`its health check is answered by release ${found ?? '(none named)'}`);
      else resolve('');
    });
    request.on('timeout', () => request.destroy());
    request.on('error', (error) => resolve(`its health check fails on port ${port}: ${error.message}`));
  });
}

async function main() {
  const apps = [].concat(require(asked.ecosystem).apps ?? []);
  const app = apps.find((candidate) => candidate.name === asked.name);
  if (!app) throw new Error(`${asked.ecosystem} describes no application called ${asked.name}`);
  const port = await findPort();
  const { PATH, HOME, LANG } = process.env;
  const began = Date.now();
  // Forked, so that it says when it is ready, as to pm2, and ends when this process does.
  const child = fork(path.join(asked.directory, 'server.js'), {
    cwd: asked.directory,
    execArgv: app.node_args ?? [],
    env: { PATH, HOME, LANG, ...app.env, HOST: '127.0.0.1', PORT: String(port), NODE_APP_INSTANCE: 'probe', ENV_PATH: asked.dotenv },
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  });
  const log = [];
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (data) => {
      log.push(...data.toString().split('\n').filter((line) => line.trim()));
      log.splice(0, log.length - LOG_LINES);
    });
  }
  let ready = false;
  let ended = '';
  const exit = new Promise((resolve) => {
    child.once('error', (error) => resolve((ended = `it cannot be started: ${error.message}`)));
    child.once('exit', (code, signal) => resolve((ended = `it ended with ${signal ?? `exit code ${code}`} before it was ready`)));
  });
  child.on('message', (message) => {
    ready = ready || message === 'ready';
  });

  let reason = `it was not ready within ${asked.limit_s} s`;
  while (Date.now() - began < asked.limit_s * 1000) {
    if (ended) reason = ended;
    else if (ready) reason = await ask(port);
    if (ended || ready) break;
    await sleep(POLL_MS);
  }
  const seconds = (Date.now() - began) / 1000;
  child.kill('SIGTERM');
  await Promise.race([exit, sleep(asked.end_limit_s * 1000)]);
  if (!ended) child.kill('SIGKILL');
  process.stdout.write(`${JSON.stringify({ ok: reason === '', reason, seconds, log: reason ? log : [] })}\n`);
  process.exit(0);
}

main().catch((error) => {
  process.stdout.write(`${JSON.stringify({ ok: false, reason: error.message, seconds: 0, log: [] })}\n`);
  process.exit(0);
});
