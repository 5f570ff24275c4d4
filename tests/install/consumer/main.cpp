// The first steps of a user's program. Exits with 1 if the library answers wrongly.
#include <iostream>

#include "shmap/dtype.h"
#include "shmap/error.h"
#include "shmap/shape.h"

int main() {
  const shmap::Shape shape{2, 3, 4};
  std::cout << shmap::f32 << shape << " has " << shape.num_elements() << " elements\n";
  bool thrown = false;
  try {
    shmap::Shape({1L << 40, 1L << 40}).num_elements();
  } catch (const shmap::ValueError& error) {  // across the library's boundary
    thrown = true;
    std::cout << error.what() << "\n";
  }
  return shape.num_elements() == 24 && thrown ? 0 : 1;
}
