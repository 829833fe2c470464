/* probe.pml: "did it happen?", asked of a service about a step in doubt.
 *
 * A probe that does not fence may say "not happened" and be overtaken: the call arrives later and takes effect. So that answer
 * only means "ask again under the same key"; it spares an undo, and calls a step failed, only when the service refuses from then
 * on whatever is older (-DFENCES declared, -DPROBE_FENCES kept). A service without keys (-DNEVER) is neither asked again nor undone
 * while nobody can tell. The rules and what is checked: engine.inc.
 */
#ifndef MOST
#define MOST 16
#endif
#ifndef CANCELS
#define CANCELS 1
#endif
#include "engine.inc"
