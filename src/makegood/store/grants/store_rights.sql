grant select on makegood.generation, makegood.schema_version, makegood.node, makegood.lease, makegood.writer to ":role";
:writer_rights
