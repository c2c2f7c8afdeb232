'use strict';

const path = require('node:path');

// Readers and one writer in several processes: write-ahead log, and wait for the lock instead of failing.
const sharedSqlite = {
  min: 1,
  max: 1,
  afterCreate(connection, done) {
    connection.pragma('journal_mode = WAL');
    connection.pragma('busy_timeout = 15000');
    connection.pragma('synchronous = NORMAL');
    done(null, connection);
  },
};

module.exports = ({ env }) => ({
  connection: {
    client: 'sqlite',
    connection: { filename: path.resolve(env('DATABASE_FILENAME', '.tmp/data.db')) },
    useNullAsDefault: true,
    pool: sharedSqlite,
  },
});
