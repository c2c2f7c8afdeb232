'use strict';

const path = require('node:path');

const CONNECTIONS = {
  sqlite: (env) => ({
    connection: { filename: path.resolve(env('DATABASE_FILENAME', '.tmp/data.db')) },
    useNullAsDefault: true,
  }),
  postgres: (env) => ({
    connection: {
      host: env('DATABASE_HOST', '127.0.0.1'),
      port: env.int('DATABASE_PORT', 5432),
      database: env('DATABASE_NAME', 'strapi'),
      user: env('DATABASE_USERNAME', 'strapi'),
      password: env('DATABASE_PASSWORD'),
      ssl: env.bool('DATABASE_SSL', false) && {
        rejectUnauthorized: env.bool('DATABASE_SSL_REJECT_UNAUTHORIZED', true),
      },
      schema: env('DATABASE_SCHEMA', 'public'),
    },
    pool: { min: env.int('DATABASE_POOL_MIN', 2), max: env.int('DATABASE_POOL_MAX', 10) },
  }),
};

module.exports = ({ env }) => {
  const client = env('DATABASE_CLIENT', 'sqlite');
  return { connection: { client, ...CONNECTIONS[client](env) } };
};
