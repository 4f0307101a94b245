/* Runs for one second, so that it is found. */
#include <stdio.h>
#include <unistd.h>

int main(void) {
    sleep(1);
    puts("done");
    return 9;
}
