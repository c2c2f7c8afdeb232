'use strict';

const PUBLIC_ACTIONS = ['find', 'findOne', 'create'].map((action) => `api::article.article.${action}`);

/** Let visitors read and write articles. Safe to repeat; one worker does it, since two would insert the rows twice. */
async function allowPublicAccess(strapi) {
  const role = await strapi.db.query('plugin::users-permissions.role').findOne({ where: { type: 'public' } });
  const permissions = strapi.db.query('plugin::users-permissions.permission');
  for (const action of PUBLIC_ACTIONS) {
    const existing = await permissions.findOne({ where: { action, role: role.id } });
    if (!existing) await permissions.create({ data: { action, role: role.id } });
  }
}

module.exports = {
  async bootstrap({ strapi }) {
    const isFirstWorker = (process.env.NODE_APP_INSTANCE ?? '0') === '0';
    if (isFirstWorker) await allowPublicAccess(strapi);
  },
};
