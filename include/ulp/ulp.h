// Ulp as a library: networks of your own, trained in narrow floating point.
//
//   network.h    a build function makes the graph
//   operators.h  what it is made of
//   session.h    trains it, evaluates it, saves it
//   error.h      what bad input throws
//
// docs/library.md has a tour. examples/ has whole programs.
#pragma once

#include "ulp/error.h"      // IWYU pragma: export
#include "ulp/network.h"    // IWYU pragma: export
#include "ulp/operators.h"  // IWYU pragma: export
#include "ulp/session.h"    // IWYU pragma: export
#include "ulp/shape.h"      // IWYU pragma: export
#include "ulp/version.h"    // IWYU pragma: export
