/* parallel.pml: two steps of one task, each at a service of its own, with undo.
 *
 * They are parallel: neither waits for the other. When one fails for good the other is withdrawn, or awaited until its reply or
 * complete-by, and only then undone; when the undo of one is stuck, that of the other goes on. With -DSEQ step 1 waits for
 * step 0 and is undone before it. The rules and what is checked: engine.inc.
 */
#define N 2
#include "engine.inc"
