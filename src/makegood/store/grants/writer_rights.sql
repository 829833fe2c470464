grant insert (id, number, at), update (number, outcome, at) on makegood.writer to ":role";
