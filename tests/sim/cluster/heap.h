/* heap.h: heaps that are dropped whole.
 *
 * A process that is killed frees nothing; so each simulated broker has a heap of its own, which is taken back in one
 * stroke when it dies, in whatever state it was.  Everything else that lives as long as a run (network, disks, store,
 * clients) is in the world's heap, dropped at the run's end.  malloc() and its kin are the linker's to replace (--wrap,
 * see CMakeLists.txt): they take from the heap that was entered last, free() knows whose a block is by its address.
 * The heaps lie at fixed addresses: a run that is repeated sees the same pointers.
 *
 * Under the address sanitizer what was freed is poisoned, and small blocks are not given out again before the drop. */
#ifndef TESTS_SIM_CLUSTER_HEAP_H
#define TESTS_SIM_CLUSTER_HEAP_H

enum { HEAP_NONE = -1, HEAP_WORLD = 0, HEAPS_MAX = 8 }; /* HEAP_NONE: the process's own */

/* Which one is taken from now on; returns the one before. */
int heap_enter(int heap);
/* Everything in it is gone. */
void heap_drop(int heap);

#endif
