/* Prints the sum of the bytes of files. Without files, reads beyond an array. */
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **paths) {
    unsigned char *block = malloc(1000);
    if (count < 2) return block[1000 + count];
    for (int number = 1; number < count; number++) {
        FILE *file = fopen(paths[number], "rb");
        unsigned long sum = 0;
        size_t got;
        while (file && (got = fread(block, 1, 1000, file)) > 0)
            for (size_t at = 0; at < got; at++) sum += block[at];
        printf("%lu\n", sum);
        if (file) fclose(file);
    }
    free(block);
    return 0;
}
