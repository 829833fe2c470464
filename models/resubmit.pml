/* resubmit.pml: a task that was held, or undone, is sent forward again.
 *
 * The round, and with it the key, rises only when the earlier effect is known to be gone (failed, undone). A step in doubt keeps its
 * key, a step whose undo has failed bars the way, and the attempt goes on counting over the rounds. An operator may undo, settle by
 * hand, cancel and resubmit at any moment that allows it. The rules, the acts and what is checked: engine.inc, acts.inc.
 */
#ifndef MOST
#define MOST 16
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef CANCELS
#define CANCELS 1
#endif
#ifndef UNDOS
#define UNDOS 1
#endif
#ifndef RESUBMITS
#define RESUBMITS 1
#endif
#ifndef SETTLES
#define SETTLES 1
#endif
#include "engine.inc"
