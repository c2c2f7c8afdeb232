'use strict';
// Logs in to the database as the release in the current directory will, and prints what it found as one last line of JSON.
// What .env will hold comes through standard input, so that no password is in a process list or an environment.

const fs = require('node:fs');
const { createRequire } = require('node:module');
const path = require('node:path');

const CONNECT_TIMEOUT_MS = 10_000;
// What knex opens at most for a project that does not say.
const POOL_MAX_DEFAULT = 10;

// Strapi's names of the clients, those of version 4 included.
const CLIENTS = {
  sqlite: 'sqlite', 'better-sqlite3': 'sqlite', sqlite3: 'sqlite',
  postgres: 'postgres', pg: 'postgres',
  mysql: 'mysql', mysql2: 'mysql',
};

// What drivers, servers and Node.js call what went wrong.
const REASONS = {
  unreachable: ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'ETIMEDOUT', 'EHOSTUNREACH', 'ENETUNREACH', 'ECONNRESET', 'ENOENT', '57P03'],
  password: ['28P01', '28000', 'ER_ACCESS_DENIED_ERROR'],
  database: ['3D000', 'ER_BAD_DB_ERROR'],
  forbidden: ['42501', 'ER_DBACCESS_DENIED_ERROR'],
  connections: ['53300', 'ER_CON_COUNT_ERROR', 'ER_USER_LIMIT_REACHED', 'ER_TOO_MANY_USER_CONNECTIONS'],
};

const project = createRequire(path.join(process.cwd(), 'package.json'));

/** The connection that the project's own configuration describes, as Strapi itself reads it. */
async function readSettings({ env, secrets }) {
  Object.assign(process.env, env, { STRAPI_DISABLE_UPDATE_NOTIFICATION: 'true', STRAPI_TELEMETRY_DISABLED: 'true' });
  const strapi = project('@strapi/strapi');
  // By now Strapi has read .env. What is not in it before the first roll-out gets any value: a configuration may insist on it.
  for (const name of secrets) process.env[name] ??= 'not yet';
  const app = (strapi.createStrapi ?? strapi)(fs.existsSync('tsconfig.json') ? { distDir: './dist' } : {});
  const { client, connection, pool } = app.config.get('database.connection');
  const login = typeof connection === 'function' ? await connection() : connection;
  return { client: CLIENTS[client] ?? client, login, poolMax: pool?.max ?? POOL_MAX_DEFAULT };
}

async function askPostgres(login) {
  const { Client } = project('pg');
  const { schema = 'public', ...rest } = typeof login === 'string' ? { connectionString: login } : login;
  const client = new Client({ ...rest, connectionTimeoutMillis: CONNECT_TIMEOUT_MS });
  await client.connect();
  const { rows } = await client.query(
    `SELECT current_setting('max_connections')::int AS max_connections,
            (SELECT sum(setting::int)::int FROM pg_settings
             WHERE name IN ('superuser_reserved_connections', 'reserved_connections')) AS reserved,
            (SELECT count(*)::int FROM pg_stat_activity WHERE datid IS NOT NULL AND usesysid IS NOT NULL
             AND (datname, usename) IS DISTINCT FROM (current_database(), current_user)) AS others,
            (SELECT least(nullif(r.rolconnlimit, -1), nullif(d.datconnlimit, -1)) FROM pg_roles r, pg_database d
             WHERE r.rolname = current_user AND d.datname = current_database()) AS own_limit,
            coalesce((SELECT has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = $1),
                     has_database_privilege(current_database(), 'CREATE')) AS may_create`,
    [schema],
  );
  await client.end();
  return rows[0];
}

async function askMysql(login) {
  const client = await project('mysql2/promise').createConnection(
    typeof login === 'string' ? login : { ...login, connectTimeout: CONNECT_TIMEOUT_MS },
  );
  // The account sees its own connections only, and the total: the rest is of others.
  const [rows] = await client.query(
    `SELECT @@max_connections AS max_connections, 0 AS reserved, nullif(@@max_user_connections, 0) AS own_limit, 1 AS may_create,
            (SELECT count(*) FROM information_schema.processlist
             WHERE user = substring_index(current_user(), '@', 1)) AS own`,
  );
  const [status] = await client.query("SHOW GLOBAL STATUS LIKE 'Threads_connected'");
  await client.end();
  const { own, ...found } = rows[0];
  return { ...found, others: Math.max(0, Number(status[0].Value) - Number(own)) };
}

/** Connections that the application may hold (allowed), and of those the ones that are left beside others (available). */
function count(found, maxConnections) {
  const allowed = (maxConnections || found.max_connections) - found.reserved;
  const limit = found.own_limit ?? Infinity;
  return { allowed: Math.min(allowed, limit), available: Math.max(0, Math.min(allowed - found.others, limit)) };
}

/** Why it failed, in one word that the role knows and one line without the password. */
function explain(error, password) {
  // Node.js gives one error for all addresses of a name.
  const cause = error.errors?.[0] ?? error;
  const code = cause.code ?? '';
  let reason = Object.keys(REASONS).find((name) => REASONS[name].includes(code));
  if (!reason && code === 'MODULE_NOT_FOUND') reason = 'driver';
  if (!reason && /timeout/i.test(cause.message)) reason = 'unreachable';
  if (!reason && /ssl|tls|certificate/i.test(`${code} ${cause.message}`)) reason = 'tls';
  const line = String(cause.message || code).split('\n')[0];
  return { reason: reason ?? 'other', detail: password ? line.replaceAll(password, '***') : line };
}

async function check(input) {
  const answer = {};
  try {
    const { client, login, poolMax } = await readSettings(input);
    Object.assign(answer, { client, pool_max: poolMax });
    const ask = { postgres: askPostgres, mysql: askMysql }[client];
    if (client !== input.env.DATABASE_CLIENT || !ask) return answer;
    Object.assign(answer, { where: login.host ? `${login.host}:${login.port}` : 'the address that it was given' });
    const found = await ask(login);
    return { ...answer, ...found, ...count(found, input.max_connections) };
  } catch (error) {
    return { ...answer, ...explain(error, input.env.DATABASE_PASSWORD) };
  }
}

check(JSON.parse(fs.readFileSync(0, 'utf8'))).then((answer) => {
  fs.writeSync(1, `\n${JSON.stringify(answer)}\n`);
  process.exit(0);
});
